// Safe types over the C interface: what a crate would offer, for the functions that the test calls.
// Each type closes its handle when it is dropped. Tensors borrow the memory of the program.
use crate::bindings::*;
use std::cell::RefCell;
use std::ffi::{CStr, CString};
use std::os::raw::{c_char, c_void};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::ptr;

pub fn api() -> &'static bowline_api {
    let table = unsafe { bowline_get_api(BOWLINE_API_VERSION as u32) };
    unsafe { table.as_ref() }.expect("the library has no table of this version")
}

#[derive(Debug, PartialEq)]
pub struct Error {
    pub code: i32,
    pub message: String,
}
pub type Result<T> = std::result::Result<T, Error>;

fn check(code: bowline_code, error: *mut bowline_error) -> Result<()> {
    if code == BOWLINE_OK {
        return Ok(());
    }
    assert_eq!(code, unsafe { (api().error_code)(error) });
    let message = text_of(unsafe { (api().error_message)(error) });
    unsafe { (api().error_free)(error) };
    Err(Error { code, message })
}

/// Calls a function of the table. Its last parameter is the error.
macro_rules! call {
    ($function:ident($($argument:expr),*)) => { call!(api(), $function($($argument),*)) };
    ($table:expr, $function:ident($($argument:expr),*)) => {{
        let mut error = ptr::null_mut();
        let code = unsafe { ($table.$function)($($argument,)* &mut error) };
        check(code, error)
    }};
}

pub fn text_of(text: *const c_char) -> String {
    unsafe { CStr::from_ptr(text) }.to_str().expect("not UTF-8").to_string()
}

fn c_text(text: &str) -> CString {
    CString::new(text).expect("a zero byte in a text")
}

fn taken(buffer: *mut bowline_buffer) -> String {
    let size = unsafe { (api().buffer_size)(buffer) };
    let data = unsafe { (api().buffer_data)(buffer) } as *const u8;
    let text = unsafe { std::slice::from_raw_parts(data, size) }.to_vec();
    unsafe { (api().buffer_free)(buffer) };
    String::from_utf8(text).expect("not UTF-8")
}

pub fn devices() -> Result<String> {
    let mut out = ptr::null_mut();
    call!(device_list(&mut out))?;
    Ok(taken(out))
}

/// A type that owns a handle. Another thread may take it over (Send), but not share it (no Sync).
macro_rules! owner {
    ($name:ident, $handle:ident, $close:ident) => {
        pub struct $name(pub *mut $handle);
        unsafe impl Send for $name {}
        impl Drop for $name {
            fn drop(&mut self) {
                call!($close(self.0)).expect(stringify!($close));
            }
        }
    };
}
owner!(Device, bowline_device, device_close);
owner!(Model, bowline_model, model_close);
owner!(Builder, bowline_builder, builder_close);
owner!(Session, bowline_session, session_close);
owner!(TrainerHandle, bowline_trainer, trainer_close);

/// A float tensor of the program.
pub struct Tensor<'a> {
    name: CString,
    shape: Vec<i64>,
    data: &'a mut [f32],
}

impl<'a> Tensor<'a> {
    pub fn new(name: &str, shape: &[i64], data: &'a mut [f32]) -> Self {
        Tensor { name: c_text(name), shape: shape.to_vec(), data }
    }
    fn c(&mut self) -> bowline_tensor {
        let mut out = bowline_tensor::sized();
        out.name = self.name.as_ptr();
        out.dtype = BOWLINE_F32;
        out.rank = self.shape.len() as i32;
        out.shape = self.shape.as_ptr();
        out.data = self.data.as_mut_ptr() as *mut c_void;
        out.bytes = (self.data.len() * 4) as u64;
        out
    }
}

fn c_tensors(tensors: &mut [Tensor]) -> Vec<bowline_tensor> {
    tensors.iter_mut().map(Tensor::c).collect()
}

impl Device {
    pub fn open(name: &str) -> Result<Device> {
        let mut out = ptr::null_mut();
        call!(device_open(c_text(name).as_ptr(), ptr::null(), &mut out))?;
        Ok(Device(out))
    }
}

impl Model {
    pub fn new() -> Result<Model> {
        let mut out = ptr::null_mut();
        call!(model_create(&mut out))?;
        Ok(Model(out))
    }
    pub fn open(path: &str) -> Result<Model> {
        let mut out = ptr::null_mut();
        call!(model_open(c_text(path).as_ptr(), ptr::null(), &mut out))?;
        Ok(Model(out))
    }
    /// Imports a model of another format. Returns also its report. `progress` returns false to stop.
    pub fn import(path: &str, progress: &mut dyn FnMut(i32, u64, u64) -> bool) -> Result<(Model, String)> {
        let table = unsafe { bowline_get_import_api(BOWLINE_API_VERSION as u32).as_ref() };
        let table = table.expect("the library was built without the import");
        let mut tell = progress;
        let mut options = bowline_import_options::sized();
        call!(table, import_options_init(&mut options))?;
        options.progress = Some(call_progress);
        options.user = &mut tell as *mut Tell as *mut c_void;
        let (mut model, mut report) = (ptr::null_mut(), ptr::null_mut());
        call!(table, import_model(c_text(path).as_ptr(), &options, &mut model, &mut report))?;
        Ok((Model(model), taken(report)))
    }
    pub fn save(&self, path: &str) -> Result<()> {
        call!(model_save(self.0, c_text(path).as_ptr()))
    }
    pub fn parameter(&self, name: &str, shape: &[i64]) -> Result<bowline_parameter> {
        let mut out = bowline_parameter { model: 0, index: 0 };
        let rank = shape.len() as i32;
        call!(model_parameter(self.0, c_text(name).as_ptr(), shape.as_ptr(), rank, ptr::null(),
            BOWLINE_ROLE_WEIGHT, BOWLINE_F32, &mut out))?;
        Ok(out)
    }
    pub fn materialize(&self, seed: u64) -> Result<()> {
        call!(model_materialize(self.0, seed))
    }
    pub fn to(&self, device: &Device) -> Result<()> {
        call!(model_to(self.0, device.0, ptr::null()))
    }
    pub fn value(&self, name: &str, shape: &[i64]) -> Result<Vec<f32>> {
        let mut out = vec![0.0; shape.iter().product::<i64>() as usize];
        let mut owner = Tensor::new("", shape, &mut out); // lives until the call returns
        let tensor = owner.c();
        call!(model_get_value(self.0, c_text(name).as_ptr(), &tensor))?;
        Ok(out)
    }
    pub fn describe(&self) -> Result<String> {
        let mut out = ptr::null_mut();
        call!(model_describe(self.0, &mut out))?;
        Ok(taken(out))
    }
}

impl Builder {
    pub fn new(model: &Model, name: &str) -> Result<Builder> {
        let mut out = ptr::null_mut();
        call!(builder_create(model.0, c_text(name).as_ptr(), &mut out))?;
        Ok(Builder(out))
    }
    /// An input with `rows` rows: the name of a dimension.
    pub fn input(&self, name: &str, rows: &str, columns: i64) -> Result<bowline_value> {
        let rows = c_text(rows);
        let mut dims = [bowline_graph_dim::sized(); 2];
        dims[0].name = rows.as_ptr();
        dims[1].value = columns;
        let mut out = bowline_value { index: 0, graph: 0 };
        call!(builder_input(self.0, c_text(name).as_ptr(), BOWLINE_F32, dims.as_ptr(), 2, &mut out))?;
        Ok(out)
    }
    pub fn parameter(&self, parameter: bowline_parameter) -> Result<bowline_value> {
        let mut out = bowline_value { index: 0, graph: 0 };
        call!(builder_parameter(self.0, parameter, &mut out))?;
        Ok(out)
    }
    pub fn op(&self, name: &str, inputs: &[bowline_value]) -> Result<bowline_value> {
        let mut out = bowline_value { index: 0, graph: 0 };
        call!(builder_op(self.0, c_text(name).as_ptr(), inputs.as_ptr(), inputs.len(), ptr::null(), 0,
            &mut out))?;
        Ok(out)
    }
    pub fn output(&self, name: &str, value: bowline_value) -> Result<()> {
        call!(builder_output(self.0, c_text(name).as_ptr(), value))
    }
    pub fn finish(self) -> Result<()> {
        call!(builder_finish(self.0))
    }
}

impl Session {
    pub fn new(model: &Model, device: &Device, entry_point: &str, rows: i64) -> Result<Session> {
        let (name, dim_name) = (c_text(entry_point), c_text("batch"));
        let mut dim = bowline_bound_dim::sized();
        dim.name = dim_name.as_ptr();
        dim.value = rows;
        let mut entry = bowline_entry_point::sized();
        entry.name = name.as_ptr();
        entry.dims = &dim;
        entry.dim_count = 1;
        entry.compute_dtype = BOWLINE_NO_DTYPE;
        let mut out = ptr::null_mut();
        call!(session_create(model.0, device.0, &entry, 1, ptr::null(), &mut out))?;
        Ok(Session(out))
    }
    pub fn run(&self, inputs: &mut [Tensor], outputs: &mut [Tensor]) -> Result<()> {
        let (from, to) = (c_tensors(inputs), c_tensors(outputs));
        call!(session_run(self.0, ptr::null(), from.as_ptr(), from.len(), to.as_ptr(), to.len(),
            ptr::null(), 0, ptr::null(), 0))
    }
}

type Tell<'a> = &'a mut dyn FnMut(i32, u64, u64) -> bool;

/// Calls the closure that `user` points to. If it panics, the import stops.
unsafe extern "C" fn call_progress(user: *mut c_void, at: *const bowline_import_progress) -> i32 {
    let (tell, at) = (&mut *(user as *mut Tell), &*at);
    let goes_on = catch_unwind(AssertUnwindSafe(|| tell(at.part, at.done, at.total)));
    i32::from(!goes_on.unwrap_or(false))
}

type Hook = Box<dyn FnMut(&str, &mut [f32]) -> std::result::Result<(), String> + Send>;

/// Calls the closure that `user` points to. A panic must not leave it: C cannot unwind.
unsafe extern "C" fn call_hook(
    user: *mut c_void, of: *const c_char, gradient: *mut f32, count: u64,
    error: *mut *mut bowline_error,
) -> bowline_code {
    let hook = &*(user as *const RefCell<Hook>);
    let values = std::slice::from_raw_parts_mut(gradient, count as usize);
    let done = catch_unwind(AssertUnwindSafe(|| (hook.borrow_mut())(&text_of(of), values)));
    let sentence = match done {
        Ok(Ok(())) => return BOWLINE_OK,
        Ok(Err(sentence)) => sentence,
        Err(_) => "The hook panicked.".to_string(),
    };
    *error = (api().error_create)(BOWLINE_CANCELLED, c_text(&sentence).as_ptr());
    BOWLINE_CANCELLED
}

/// The handle is dropped before the hook, which must be callable until then.
pub struct Trainer {
    handle: TrainerHandle,
    hook: Option<Box<RefCell<Hook>>>,
}

impl Trainer {
    pub fn new(model: &Model, device: &Device, rows: i64, learning_rate: f32) -> Result<Trainer> {
        let mut options = bowline_train_options::sized();
        call!(train_options_init(&mut options))?;
        let mut schedule = bowline_schedule::sized();
        call!(schedule_init(&mut schedule))?;
        schedule.learning_rate = learning_rate;
        let dim_name = c_text("batch");
        let mut dim = bowline_bound_dim::sized();
        dim.name = dim_name.as_ptr();
        dim.value = rows;
        options.dims = &dim;
        options.dim_count = 1;
        options.schedule = &schedule;
        let mut out = ptr::null_mut();
        call!(trainer_create(model.0, device.0, &options, &mut out))?;
        Ok(Trainer { handle: TrainerHandle(out), hook: None })
    }
    pub fn set_hook(&mut self, hook: Hook) -> Result<()> {
        let kept = Box::new(RefCell::new(hook));
        let user = &*kept as *const RefCell<Hook> as *mut c_void;
        call!(trainer_set_gradient_hook(self.handle.0, Some(call_hook), user))?;
        self.hook = Some(kept);
        Ok(())
    }
    pub fn remove_hook(&mut self) -> Result<()> {
        call!(trainer_set_gradient_hook(self.handle.0, None, ptr::null_mut()))?;
        self.hook = None;
        Ok(())
    }
    pub fn step(&self, tensors: &mut [Tensor]) -> Result<bowline_step_report> {
        let list = c_tensors(tensors);
        let mut batch = bowline_batch::sized();
        batch.tensors = list.as_ptr();
        batch.count = list.len();
        let mut report = bowline_step_report::sized();
        call!(trainer_step(self.handle.0, &batch, 1, &mut report))?;
        Ok(report)
    }
}
