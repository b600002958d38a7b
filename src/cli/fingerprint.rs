//! `modelbench fingerprint`: the order in which a backend adds up products.

use std::io::Write;

use modelbench_evidence::tree::{Measured, Product, ProductTree, Tree, TreeSummary, describe, summary};

use super::args::FingerprintArgs;
use super::exit;
use super::failure::Failure;
use crate::runner::{self, FingerprintError, FingerprintPlan, Fingerprinted};

pub(super) fn run(args: &FingerprintArgs, out: &mut impl Write) -> Result<u8, Failure> {
    let plan = FingerprintPlan { candidate: args.candidate.candidate()?, seed: args.seed };
    let found = runner::fingerprint(&plan).map_err(|error| match error {
        FingerprintError::NotLoaded { .. } => Failure::new(exit::NOT_LOADED, error),
        FingerprintError::Gone { .. } => Failure::new(exit::NOTHING, error),
    })?;
    let trees = Measured::trees(&found.measured);
    let summaries = summary(&trees)?;
    let code = if trees.is_empty() { exit::NOTHING } else { exit::OK };
    if args.json {
        let object = serde_json::json!({
            "backend": found.identity,
            "seed": format!("{:#x}", args.seed),
            "measured": found.measured,
            "summary": summaries,
            "meaning": meaning(&found, &summaries),
            "exit": code,
        });
        writeln!(out, "{object}")?;
    } else {
        print(&found, &summaries, out)?;
    }
    Ok(code)
}

/// A line for each product and number of terms, and what they mean.
fn print(found: &Fingerprinted, summaries: &[TreeSummary], out: &mut impl Write) -> Result<(), Failure> {
    let identity = &found.identity;
    writeln!(out, "backend    {} {} ({})", identity.name, identity.version, identity.device.hardware)?;
    let mut before = None;
    for measured in &found.measured {
        let product = measured.product();
        if before.replace(product) != Some(product) {
            writeln!(out, "{}", heading(product))?;
        }
        match measured {
            Measured::Tree(tree) => writeln!(out, "  {}", line(tree)?)?,
            Measured::NotMeasured(missing) => {
                writeln!(out, "  k={:<4} not measured: {}", missing.k, missing.reason)?;
            }
        }
    }
    writeln!(out, "meaning    {}", meaning(found, summaries))?;
    Ok(())
}

fn heading(product: Product) -> &'static str {
    match product {
        Product::Matmul => "matmul, many rows",
        Product::MatmulOneRow => "matmul, one row",
        Product::BatchedMatmul => "batched_matmul",
        Product::AttentionSum => "attention, the weighted sum of values",
    }
}

fn line(found: &ProductTree) -> Result<String, Failure> {
    let tree = found.parse()?;
    let own = tree == Tree::cpu_ref(found.product, tree.leaves());
    let whose = if own { "cpu-ref's" } else { "its own" };
    let foretold = found.foretold.map_or(String::new(), |foretold| {
        format!("; foretells {} of {} ordinary results", foretold.explained(), foretold.results)
    });
    Ok(format!("k={:<4} {whose:<9}  depth {:<3}  {}{foretold}", found.k, tree.depth(), describe(&tree)))
}

/// True if ordinary products have not the bits that some tree gives them.
fn is_of_probes_alone(found: &ProductTree) -> bool {
    let holds = found.foretold.map(|foretold| found.parse().is_ok_and(|tree| foretold.holds(&tree)));
    holds == Some(false)
}

/// What the trees mean, in one line.
///
/// Attention's order alone says little: cpu-ref adds there from the first to the last, as most people do.
fn meaning(found: &Fingerprinted, summaries: &[TreeSummary]) -> String {
    let (same, other): (Vec<_>, Vec<_>) = summaries.iter().partition(|product| product.is_cpu_ref());
    let missing =
        found.measured.iter().filter(|measured| matches!(measured, Measured::NotMeasured(_))).count();
    let names =
        |some: &[&TreeSummary]| some.iter().map(|s| s.product.as_str()).collect::<Vec<_>>().join(", ");
    let probes_alone = Measured::trees(&found.measured).iter().any(is_of_probes_alone);
    let mut text = match (same.as_slice(), other.as_slice()) {
        _ if probes_alone => "the order of the probes is not that of ordinary products: it does not say who did the work"
            .to_owned(),
        ([], []) => "no order was found".to_owned(),
        (_, []) => "every order found is cpu-ref's: either cpu-ref did the work, or code that adds exactly as it does"
            .to_owned(),
        ([], _) => "no product is added up in cpu-ref's order: cpu-ref did not do this work".to_owned(),
        (same, other) => format!("not cpu-ref's order: {}; cpu-ref's on every k probed: {}", names(other), names(same)),
    };
    if missing > 0 {
        text.push_str(&format!(
            " ({missing} of {} not measured, which counts for nobody)",
            found.measured.len()
        ));
    }
    text
}
