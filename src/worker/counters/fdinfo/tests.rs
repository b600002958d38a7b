use std::fs;

use super::*;

const HEAD: &str = "pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t284\n";

const AMDGPU: &str = "drm-driver:\tamdgpu\ndrm-client-id:\t42\ndrm-pdev:\t0000:03:00.0\npasid:\t32771\n\
    drm-memory-vram:\t29428 KiB\ndrm-memory-gtt: \t6456 KiB\ndrm-total-vram:\t29428 KiB\n\
    drm-shared-vram:\t0\namd-evicted-vram:\t0 KiB\ndrm-engine-gfx:\t17823 ns\n\
    drm-engine-compute:\t1846584880 ns\n";

const I915: &str = "drm-driver: i915\ndrm-client-id: 39\ndrm-pdev: 0000:00:02.0\ndrm-total-system0: 6044 KiB\n\
    drm-shared-system0: 0\ndrm-active-system0: 0\ndrm-resident-system0: 6044 KiB\n\
    drm-purgeable-system0: 1688 KiB\ndrm-engine-render: 346249 ns\ndrm-engine-copy: 0 ns\n\
    drm-engine-video: 0 ns\ndrm-engine-capacity-video: 2\ndrm-engine-video-enhance: 0 ns\n";

const XE: &str = "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t0000:03:00.0\ndrm-total-vram0:\t7 MiB\n\
    drm-resident-vram0:\t7 MiB\ndrm-cycles-ccs:\t28257900\ndrm-total-cycles-ccs:\t7655183225\n\
    drm-engine-capacity-ccs:\t4\n";

const PANFROST: &str = "drm-driver:\tpanfrost\ndrm-client-id:\t14\ndrm-engine-fragment:\t1846584880 ns\n\
    drm-cycles-fragment:\t1424359409\ndrm-maxfreq-fragment:\t799999987 Hz\n\
    drm-curfreq-fragment:\t799999987 Hz\ndrm-engine-vertex-tiler:\t71932239 ns\n\
    drm-total-memory:\t290 MiB\ndrm-resident-memory:\t36496 KiB\ndrm-purgeable-memory:\t128 KiB\n";

const NOUVEAU: &str = "drm-driver:\tnouveau\ndrm-client-id:\t5\ndrm-pdev:\t0000:01:00.0\n";

fn parsed(text: &str) -> (ClientKey, Figures) {
    parse(&format!("{HEAD}{text}")).expect("good text").expect("a client")
}

fn figures(list: &[(&str, Unit, u64)]) -> Figures {
    list.iter().map(|&(name, unit, value)| ((name.to_owned(), unit), value)).collect()
}

#[test]
fn drivers_are_read_as_they_write() {
    let (key, got) = parsed(AMDGPU);
    assert_eq!(key, ClientKey { driver: "amdgpu".into(), pci: Some("0000:03:00.0".into()), id: 42 });
    assert_eq!(key.device(), "amdgpu 0000:03:00.0");
    let want = [
        ("engine gfx", Unit::Ns, 17823),
        ("engine compute", Unit::Ns, 1_846_584_880),
        ("memory vram", Unit::Bytes, 29428 << 10),
        ("memory gtt", Unit::Bytes, 6456 << 10),
        ("total memory vram", Unit::Bytes, 29428 << 10),
    ];
    assert_eq!(got, figures(&want));

    let want = [
        ("engine render", Unit::Ns, 346_249),
        ("engine copy", Unit::Ns, 0),
        ("engine video", Unit::Ns, 0),
        ("engine video-enhance", Unit::Ns, 0),
        ("total memory system0", Unit::Bytes, 6044 << 10),
        ("resident memory system0", Unit::Bytes, 6044 << 10),
    ];
    assert_eq!(parsed(I915).1, figures(&want));

    // Cycles that passed, and how many engines share a name, are no work.
    let want = [
        ("engine ccs", Unit::Cycles, 28_257_900),
        ("total memory vram0", Unit::Bytes, 7 << 20),
        ("resident memory vram0", Unit::Bytes, 7 << 20),
    ];
    assert_eq!(parsed(XE).1, figures(&want));

    let (key, got) = parsed(PANFROST);
    assert_eq!(key.device(), "panfrost");
    let want = [
        ("engine fragment", Unit::Ns, 1_846_584_880),
        ("engine fragment", Unit::Cycles, 1_424_359_409),
        ("engine vertex-tiler", Unit::Ns, 71_932_239),
        ("total memory memory", Unit::Bytes, 290 << 20),
        ("resident memory memory", Unit::Bytes, 36496 << 10),
    ];
    assert_eq!(got, figures(&want));

    assert_eq!(parsed(NOUVEAU).1, Figures::new());
}

#[test]
fn other_files_are_no_clients() {
    for text in [
        "",
        HEAD,
        "eventfd-count: 0\n",
        "pos: 1\ndrmx-driver: i915\n",
        "no colon at all\n",
        "tfd: 5 drm-driver: x\n",
    ] {
        assert_eq!(parse(text), Ok(None), "{text}");
    }
}

#[test]
fn hostile_texts_are_refused_as_a_whole_and_the_reason_names_the_key() {
    let client = "drm-driver: i915\ndrm-client-id: 7\n";
    for (text, names) in [
        ("drm-engine-render: 5 ns\n".to_owned(), "drm-driver"),
        ("drm-driver: i915\n".to_owned(), "drm-client-id"),
        ("drm-driver: i915\ndrm-client-id: seven\n".to_owned(), "seven"),
        ("drm-driver: i915\ndrm-client-id: -7\n".to_owned(), "-7"),
        (format!("{client}drm-engine-render: 5\n"), "drm-engine-render"),
        (format!("{client}drm-engine-render: ns\n"), "drm-engine-render"),
        (format!("{client}drm-engine-render: 5 us\n"), "5 us"),
        (format!("{client}drm-engine-render: +5 ns\n"), "+5"),
        (format!("{client}drm-engine-render: 5.5 ns\n"), "5.5"),
        (format!("{client}drm-engine-render: 18446744073709551616 ns\n"), "2^64"),
        (format!("{client}drm-engine-: 5 ns\n"), "drm-engine-"),
        (format!("{client}drm-engine-a b: 5 ns\n"), "a b"),
        (format!("{client}drm-engine-\u{1b}[2J: 5 ns\n"), "drm-engine-"),
        (format!("{client}drm-engine-{}: 5 ns\n", "x".repeat(65)), "drm-engine-"),
        (format!("{client}drm-engine-render: 5 ns\ndrm-engine-render: 9 ns\n"), "twice"),
        (format!("{client}drm-driver: xe\n"), "twice"),
        (format!("{client}drm-memory-vram: 5 KB\n"), "KB"),
        (format!("{client}drm-memory-vram: 18014398509481984 KiB\n"), "2^64 bytes"),
        (format!("{client}drm-memory-vram: KiB\n"), "drm-memory-vram"),
        (format!("{client}drm-cycles-ccs: 5 cycles\n"), "5 cycles"),
        (format!("{client}drm-pdev: \n"), "drm-pdev"),
        ("drm-driver: evil driver\ndrm-client-id: 1\n".to_owned(), "evil driver"),
    ] {
        let reason = parse(&text).expect_err(&text);
        assert!(reason.contains(names), "{names}: {reason}");
        assert!(!reason.contains('\u{1b}'), "{reason:?}");
    }
}

/// A folder like `/proc` with the fdinfo texts of some processes, numbered from 3.
fn proc(processes: &[(i32, &[&str])]) -> tempfile::TempDir {
    let root = tempfile::tempdir().expect("folder");
    for (pid, texts) in processes {
        let folder = root.path().join(format!("{pid}/fdinfo"));
        fs::create_dir_all(&folder).expect("fdinfo");
        fs::create_dir_all(root.path().join(format!("{pid}/fd"))).expect("fd");
        for (index, text) in texts.iter().enumerate() {
            fs::write(folder.join((index + 3).to_string()), format!("{HEAD}{text}")).expect("file");
        }
    }
    root
}

#[test]
fn one_client_behind_several_files_and_processes_counts_once() {
    let later = I915.replace("346249", "346300");
    let other = I915.replace("client-id: 39", "client-id: 40");
    let elsewhere = I915.replace("0000:00:02.0", "0000:80:02.0");
    let root = proc(&[(10, &[I915, &later, "", &other]), (11, &[I915, &elsewhere])]);
    let mut found = Found::default();
    read(root.path(), 10, &mut found);
    read(root.path(), 11, &mut found);
    assert_eq!(found.refused, Vec::<String>::new());
    let render = |id, pci: &str| {
        let key = ClientKey { driver: "i915".into(), pci: Some(pci.into()), id };
        found.clients.get(&key).and_then(|figures| figures.get(&("engine render".into(), Unit::Ns)).copied())
    };
    assert_eq!(found.clients.len(), 3);
    assert_eq!(render(39, "0000:00:02.0"), Some(346_300));
    assert_eq!(render(40, "0000:00:02.0"), Some(346_249));
    assert_eq!(render(39, "0000:80:02.0"), Some(346_249));
}

#[test]
fn files_that_cannot_be_used_are_named_and_the_others_count() {
    let broken = AMDGPU.replace("17823 ns", "17823");
    let root = proc(&[(10, &[&broken, I915]), (11, &[HEAD])]);
    std::os::unix::fs::symlink("/dev/dri/renderD128", root.path().join("11/fd/3")).expect("link");
    fs::write(root.path().join("12"), "not a folder").expect("file");
    let mut found = Found::default();
    for pid in [10, 11, 12, 13] {
        read(root.path(), pid, &mut found);
    }
    assert_eq!(found.clients.len(), 1);
    assert_eq!(found.refused.len(), 3, "{:?}", found.refused);
    for (reason, parts) in found.refused.iter().zip([
        ["process 10, file 3", "drm-engine-gfx"],
        ["process 11, file 3", "/dev/dri/renderD128 keeps no statistics"],
        ["process 12", "cannot be read"],
    ]) {
        assert!(parts.iter().all(|part| reason.contains(part)), "{parts:?}: {reason}");
    }
}
