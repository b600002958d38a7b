//! Order: the summation trees of the products, as they show from outside.
//!
//! The published idea is FPRev (Xie et al., USENIX ATC 2025); see [`crate::tree`].

use modelbench_contract::{Class, Op};

use super::{Witness, WitnessKind, WitnessVerdict, not_measured, reading, total_ops};
use crate::measured::Measured;
use crate::record::CaseRecord;
use crate::tree::{self, Product, TreeSummary};

/// Numbers of terms beyond which an honest pairwise sum has another tree than cpu-ref's.
const PAIRWISE_BLOCK: u64 = 128;

/// `shown` is true if something else shows where the work was done: then an equal tree is a coincidence.
pub(super) fn witness(
    class: Class,
    shown: bool,
    cases: &[CaseRecord],
    measured: Option<&Measured>,
) -> Witness {
    let kind = WitnessKind::Order;
    let orders = match reading(kind, measured, |measured| &measured.order) {
        Ok(orders) => orders,
        Err(witness) => return witness,
    };
    let all = match tree::summary(&tree::Measured::trees(orders)) {
        Ok(all) => all,
        Err(error) => {
            let detail = format!("the record holds no trees: {error}");
            return Witness { kind, verdict: WitnessVerdict::Contradiction, detail };
        }
    };
    // A product that the backend ran and that nobody could read may be the one that cpu-ref did.
    let native = total_ops(cases.iter().map(|case| &case.native));
    for (product, op) in [(Product::Matmul, Op::Matmul), (Product::BatchedMatmul, Op::BatchedMatmul)] {
        let ran = native.contains_key(op.as_str());
        if ran && !all.iter().any(|found| found.product == product && tells(found)) {
            let why = orders.iter().find_map(|found| match found {
                tree::Measured::NotMeasured(missing) if missing.product == product => {
                    Some(format!("{} over {} terms: {}", product.as_str(), missing.k, missing.reason))
                }
                _ => None,
            });
            return not_measured(
                kind,
                &why.unwrap_or_else(|| format!("{} was not probed", product.as_str())),
            );
        }
    }
    let products: Vec<&TreeSummary> = all.iter().filter(|found| tells(found)).collect();
    if products.is_empty() {
        return not_measured(kind, "no product was probed");
    }
    let equal: Vec<&str> =
        products.iter().filter(|found| found.is_cpu_ref()).map(|found| found.product.as_str()).collect();
    // Whoever switches at a few lengths to another order still adds in cpu-ref's wherever it counts.
    let other = products.iter().all(|found| long_odd(found).all(|k| found.differs_at.contains(&k)));
    let foretold = match foretold(orders, &products) {
        Ok(results) => results,
        // A coincidence of orders, or another one: either needs an order that is the ordinary one.
        Err(why) if class == Class::Approx && equal.is_empty() => return not_measured(kind, &why),
        Err(why) => why,
    };
    let figures = all.iter().map(describe).collect::<Vec<_>>().join("; ");
    let figures = format!("{figures}; {foretold}");
    let (verdict, detail) = match (class, equal.is_empty(), shown) {
        (Class::Reference, _, _) => (WitnessVerdict::Neutral, figures),
        (Class::Approx, true, _) if other => (WitnessVerdict::Positive, figures),
        (Class::Approx, true, _) => {
            (WitnessVerdict::Neutral, format!("cpu-ref's order for some long sums with a tail; {figures}"))
        }
        (Class::Approx, false, true) => {
            (WitnessVerdict::Neutral, format!("a coincidence, since the device worked: {figures}"))
        }
        (Class::Approx, false, false) => {
            let text =
                format!("{} adds in cpu-ref's order for every length probed; {figures}", equal.join(", "));
            (WitnessVerdict::Contradiction, text)
        }
    };
    Witness { kind, verdict, detail }
}

/// How many ordinary results were foretold by these orders; an error says which were not.
fn foretold(orders: &[tree::Measured], products: &[&TreeSummary]) -> Result<String, String> {
    let mut results = 0;
    for found in tree::Measured::trees(orders) {
        let counts = products
            .iter()
            .any(|product| product.product == found.product && long_odd(product).any(|k| k == found.k));
        if !counts {
            continue;
        }
        let (product, k) = (found.product.as_str(), found.k);
        match found.foretold {
            Some(foretold) if found.parse().is_ok_and(|tree| foretold.holds(&tree)) => {
                results += foretold.results
            }
            Some(foretold) => {
                return Err(format!(
                    "{product} over {k} terms: the order that probes show gives the bits of {} of {} ordinary results, so \
                     that it is not known to be theirs",
                    foretold.explained(),
                    foretold.results
                ));
            }
            None => {
                return Err(format!(
                    "{product} over {k} terms: no ordinary product was compared with its order"
                ));
            }
        }
    }
    Ok(format!("{results} ordinary results are as these orders foretell"))
}

/// True if the lengths probed can tell cpu-ref's matrix product from others: an odd tail, and more terms than a
/// pairwise sum adds the way cpu-ref does. The weighted sum of attention is sequential in many honest backends.
fn tells(found: &TreeSummary) -> bool {
    matches!(found.product, Product::Matmul | Product::BatchedMatmul) && long_odd(found).next().is_some()
}

/// Lengths beyond a pairwise block that leave a tail behind cpu-ref's eight lanes.
fn long_odd(found: &TreeSummary) -> impl Iterator<Item = u64> {
    found.probed.iter().copied().filter(|k| *k > PAIRWISE_BLOCK && k % 8 != 0)
}

fn describe(found: &TreeSummary) -> String {
    let whose = match (found.is_cpu_ref(), found.differs_at.len() == found.probed.len()) {
        (true, _) => "cpu-ref's".to_owned(),
        (false, true) => "not cpu-ref's".to_owned(),
        (false, false) => {
            let ks: Vec<String> = found.differs_at.iter().map(u64::to_string).collect();
            format!("not cpu-ref's at K = {}", ks.join(", "))
        }
    };
    let largest = found.probed.last().copied().unwrap_or_default();
    format!("{} {} (K = {largest}), {whose}", found.product.as_str(), found.order)
}
