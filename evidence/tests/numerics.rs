//! What cases found out about the arithmetic travels in the record, and the row says the coarsest of it.

use modelbench_contract::{Activation, DType, NumericProfile, Op, Precision};
use modelbench_evidence::numerics::{Numerics, infer};
use modelbench_evidence::outcome::Outcome;
use modelbench_evidence::record::CaseRecord;
use modelbench_evidence::results::Results;
use modelbench_evidence::row::Predicate;

mod sample;

fn blank(op: Op, dtype: DType) -> Numerics {
    Numerics { op, dtype, operand: None, accumulator: None, flush_to_zero: None, activation: None }
}

fn probe(n: usize, numerics: Numerics) -> CaseRecord {
    let mut case = sample::case(&format!("r1/numerics/probe/n{n}"), numerics.op.as_str());
    case.numerics = Some(numerics);
    case
}

fn probes() -> Vec<CaseRecord> {
    let matmul = blank(Op::Matmul, DType::F32);
    let narrow = probe(2, Numerics { operand: Some(Precision::Bf16), ..matmul });
    let detail = "computes products with bf16 operands; f32 is declared".to_owned();
    vec![
        probe(0, Numerics { operand: Some(Precision::F32), ..matmul }),
        probe(1, Numerics { accumulator: Some(Precision::F64), ..matmul }),
        sample::with_outcome(narrow, Outcome::Mismatch { detail }),
        probe(3, Numerics { flush_to_zero: Some(false), ..matmul }),
        probe(4, Numerics { flush_to_zero: Some(true), ..matmul }),
        probe(5, Numerics { activation: Some(Activation::Float), ..blank(Op::Matmul, DType::Q8_0) }),
        probe(6, Numerics { activation: Some(Activation::Int8), ..blank(Op::Matmul, DType::Q8_0) }),
        probe(7, blank(Op::Rope, DType::F32)),
    ]
}

#[test]
fn the_coarsest_answer_of_an_op_and_dtype_counts() {
    let row = infer(NumericProfile::F32, &probes());
    let [f32, q8_0, rope] = row.inferred.as_slice() else { panic!("{:?}", row.inferred) };
    assert_eq!((f32.op, f32.dtype, f32.cases, f32.not_ok), (Op::Matmul, DType::F32, 5, 1));
    assert_eq!((f32.operand, f32.accumulator), (Some(Precision::Bf16), Some(Precision::F64)));
    assert_eq!((f32.flush_to_zero, f32.activation), (Some(true), None));
    assert_eq!((q8_0.dtype, q8_0.activation), (DType::Q8_0, Some(Activation::Int8)));
    assert_eq!((rope.op, rope.operand, rope.cases), (Op::Rope, None, 1));
    assert!(infer(NumericProfile::F32, &sample::cases()).inferred.is_empty());
}

#[test]
fn the_row_is_derived_from_the_record() {
    let cases = probes();
    let results = Results::parse(&sample::bytes(&sample::header(&cases), &cases)).expect("a record");
    assert_eq!(results.cases, cases);
    let row = serde_json::to_value(Predicate::of(&results).expect("a row")).expect("JSON");
    assert_eq!(row["numerics"]["declared"]["operand"], "f32");
    assert_eq!(row["numerics"]["inferred"][0]["operand"], "bf16");
    assert_eq!(row["numerics"]["inferred"][0]["notOk"], 1);
}

#[test]
fn numerics_of_another_op_than_the_case_is_about_are_refused() {
    let cases = vec![probe(0, blank(Op::Rope, DType::F32))];
    let text = String::from_utf8(sample::bytes(&sample::header(&cases), &cases)).expect("text");
    for (from, to, says) in [
        ("\"subject\":\"rope\"", "\"subject\":\"matmul\"", "numerics.op"),
        ("\"dtype\":\"f32\"}", "\"dtype\":\"f32\",\"surprise\":1}", "surprise"),
        ("\"dtype\":\"f32\"}", "\"dtype\":\"f32\",\"operand\":null}", "edited"),
    ] {
        assert!(text.contains(from), "{from}");
        let error = Results::parse(text.replacen(from, to, 1).as_bytes()).expect_err("a refusal").to_string();
        assert!(error.contains(says), "{says:?} is not in: {error}");
    }
}
