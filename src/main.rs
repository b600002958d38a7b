//! The `modelbench` command.

fn main() -> std::process::ExitCode {
    modelbench::cli::main()
}
