// Uses the C interface from Rust: generated declarations (bindings.rs) and safe types (bowline.rs).
#[allow(dead_code, non_camel_case_types)]
mod bindings {
    include!(env!("BOWLINE_BINDINGS"));
}
mod bowline;

use bindings::*;
use bowline::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Arc;

const ROWS: i64 = 8;

/// Points, and the values of 2a - 3b + 1 at them.
fn points() -> (Vec<f32>, Vec<f32>) {
    let x: Vec<f32> = (0..2 * ROWS).map(|i| ((i * 5) % 7) as f32 / 3.0 - 1.0).collect();
    let y = x.chunks(2).map(|p| 2.0 * p[0] - 3.0 * p[1] + 1.0).collect();
    (x, y)
}

/// A linear model with the entry points "loss" and "predict".
fn linear(device: &Device) -> Result<Model> {
    let model = Model::new()?;
    let weight = model.parameter("weight", &[1, 2])?;
    let bias = model.parameter("bias", &[1])?;
    for entry_point in ["loss", "predict"] {
        let builder = Builder::new(&model, entry_point)?;
        let x = builder.input("x", "batch", 2)?;
        let y = builder.op("Linear", &[x, builder.parameter(weight)?, builder.parameter(bias)?])?;
        if entry_point == "loss" {
            let target = builder.input("target", "batch", 1)?;
            builder.output("loss", builder.op("MeanSquaredError", &[y, target])?)?;
        } else {
            builder.output("y", y)?;
        }
        builder.finish()?;
    }
    model.materialize(1)?;
    model.to(device)?;
    Ok(model)
}

fn train(trainer: &Trainer, steps: usize) -> Result<Vec<f32>> {
    let (mut x, mut y) = points();
    let mut batch = [Tensor::new("x", &[ROWS, 2], &mut x), Tensor::new("target", &[ROWS, 1], &mut y)];
    (0..steps).map(|_| Ok(trainer.step(&mut batch)?.loss)).collect()
}

fn predict(session: &Session) -> Result<Vec<f32>> {
    let (mut x, _) = points();
    let mut y = vec![0.0; ROWS as usize];
    session.run(&mut [Tensor::new("x", &[ROWS, 2], &mut x)], &mut [Tensor::new("y", &[ROWS, 1], &mut y)])?;
    Ok(y)
}

#[test]
fn structs_have_the_layout_of_c() {
    extern "C" {
        static bowline_layout_count: usize;
        static bowline_layout: [usize; 0];
    }
    let ours = layout();
    let theirs = unsafe {
        let first = std::ptr::addr_of!(bowline_layout) as *const usize;
        std::slice::from_raw_parts(first, bowline_layout_count)
    };
    assert_eq!(ours.len(), theirs.len());
    for ((name, bytes), expected) in ours.iter().zip(theirs) {
        assert_eq!(bytes, expected, "{}", name);
    }
}

#[test]
fn tables_are_of_the_declared_version() {
    assert_eq!(api().size, std::mem::size_of::<bowline_api>());
    assert_eq!(text_of(unsafe { (api().version)() }).split('.').count(), 3);
    assert!(unsafe { bowline_get_api(1000) }.is_null());
    if let Some(text) = unsafe { bowline_get_text_api(BOWLINE_API_VERSION as u32).as_ref() } {
        assert_eq!(text.size, std::mem::size_of::<bowline_text_api>());
    }
    if let Some(import) = unsafe { bowline_get_import_api(BOWLINE_API_VERSION as u32).as_ref() } {
        assert_eq!(import.size, std::mem::size_of::<bowline_import_api>());
    }
}

#[test]
fn devices_are_listed_as_json() {
    let list = devices().unwrap();
    println!("{}", list);
    assert!(list.starts_with('[') && list.contains("\"name\":\"cpu\""), "{}", list);
}

#[test]
fn a_trained_model_is_saved_and_opened() {
    let device = Device::open("cpu").unwrap();
    let model = linear(&device).unwrap();
    let trainer = Trainer::new(&model, &device, ROWS, 0.05).unwrap();
    let losses = train(&trainer, 400).unwrap();
    assert!(losses[399] < 0.01 * losses[0], "{} -> {}", losses[0], losses[399]);
    drop(trainer);
    assert!(model.describe().unwrap().contains("\"predict\""));
    let weight = model.value("weight", &[1, 2]).unwrap();
    assert!(weight[0] > 1.0 && weight[1] < -2.0, "{:?}", weight);

    let path = std::env::temp_dir().join(format!("bowline_rust_{}_\u{1f9f5}.bowline", std::process::id()));
    let path = path.to_str().unwrap();
    let expected = predict(&Session::new(&model, &device, "predict", ROWS).unwrap()).unwrap();
    model.save(path).unwrap();
    drop(model);
    let opened = Model::open(path).unwrap();
    opened.to(&device).unwrap();
    let session = Session::new(&opened, &device, "predict", ROWS).unwrap();
    assert_eq!(predict(&session).unwrap(), expected);
    for (value, target) in expected.iter().zip(points().1) {
        assert!((value - target).abs() < 0.5, "{} for {}", value, target);
    }
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_closure_sees_and_stops_an_import() {
    if unsafe { bowline_get_import_api(BOWLINE_API_VERSION as u32) }.is_null() {
        println!("left out: the library was built without the import");
        return;
    }
    let path = concat!(env!("BOWLINE_TESTS"), "/import/fixtures/llama");
    let mut parts = Vec::new();
    let see = &mut |part: i32, done: u64, total: u64| {
        assert!(done < total, "{} of {}", done, total);
        parts.push(part);
        true
    };
    let (model, report) = Model::import(path, see).unwrap();
    assert!(report.contains("\"format\":\"hugging_face\""), "{}", report);
    assert!(model.describe().unwrap().contains("\"model.norm.weight\""));
    assert!(parts.contains(&BOWLINE_IMPORT_FILES) && parts.contains(&BOWLINE_IMPORT_TENSORS), "{:?}", parts);
    assert_eq!(Model::import(path, &mut |_, _, _| false).err().unwrap().code, BOWLINE_CANCELLED);
    let panics = &mut |_: i32, _: u64, _: u64| -> bool { panic!("This panic is part of the test.") };
    assert_eq!(Model::import(path, panics).err().unwrap().code, BOWLINE_CANCELLED);
}

#[test]
fn errors_have_a_code_and_a_sentence() {
    let error = Model::open("/nonexistent/a.bowline").err().unwrap();
    assert_eq!(error.code, BOWLINE_IO_ERROR);
    assert!(error.message.contains("/nonexistent/a.bowline"), "{}", error.message);
    assert_eq!(text_of(unsafe { (api().code_name)(error.code) }), "io_error");

    let device = Device::open("cpu").unwrap();
    let model = Model::new().unwrap();
    let builder = Builder::new(&model, "wrong").unwrap();
    builder.op("NoSuchOperator", &[]).ok();
    let error = builder.finish().err().unwrap();
    assert_eq!(error.code, BOWLINE_BAD_ARGUMENT);
    assert!(error.message.contains("NoSuchOperator"), "{}", error.message);
    let wrong_kind = Model(device.0 as *mut bowline_model);
    assert_eq!(wrong_kind.materialize(1).err().unwrap().code, BOWLINE_BAD_ARGUMENT);
    std::mem::forget(wrong_kind);
}

#[test]
fn a_closure_sees_and_changes_gradients() {
    let device = Device::open("cpu").unwrap();
    let model = linear(&device).unwrap();
    let mut trainer = Trainer::new(&model, &device, ROWS, 0.05).unwrap();
    let calls = Arc::new(AtomicUsize::new(0));
    let counter = calls.clone();
    let hook = move |of: &str, gradient: &mut [f32]| {
        assert!(of.starts_with('{') && of.contains("bias") || gradient.len() == 2, "{}", of);
        counter.fetch_add(1, Ordering::Relaxed);
        gradient.iter_mut().for_each(|value| *value = 0.0);
        Ok(())
    };
    trainer.set_hook(Box::new(hook)).unwrap();
    let losses = train(&trainer, 3).unwrap();
    assert_eq!(losses[0], losses[2], "the hook set all gradients to 0");
    assert_eq!(calls.load(Ordering::Relaxed), 6, "2 parameters, 3 steps");

    trainer.set_hook(Box::new(|_, _| Err("Enough.".to_string()))).unwrap();
    assert_eq!(Arc::strong_count(&calls), 1, "the first closure was dropped");
    let expected = Error { code: BOWLINE_CANCELLED, message: "Enough.".to_string() };
    assert_eq!(train(&trainer, 1), Err(expected));
    trainer.set_hook(Box::new(|_, _| panic!("This panic is part of the test."))).unwrap();
    assert_eq!(train(&trainer, 1).err().unwrap().message, "The hook panicked.");
    trainer.remove_hook().unwrap();
    let losses = train(&trainer, 3).unwrap();
    assert!(losses[2] < losses[0]);
}

#[test]
fn handles_move_to_another_thread() {
    let device = Device::open("cpu").unwrap();
    let model = linear(&device).unwrap();
    let trainer = Trainer::new(&model, &device, ROWS, 0.05).unwrap();
    // The model and the device are dropped there before the trainer, which keeps them.
    let thread = std::thread::spawn(move || {
        drop(model);
        drop(device);
        train(&trainer, 2)
    });
    assert_eq!(thread.join().unwrap().unwrap().len(), 2);
}
