/// \file
/// The C interface of Bowline, for C99 and for languages that call C.
///
/// The library exports three functions: bowline_get_api(), bowline_get_text_api() and
/// bowline_get_import_api(). They return tables of functions. A program links the library, or opens
/// it with dlopen():
///
///     const bowline_api* bl = bowline_get_api(BOWLINE_API_VERSION);
///     bowline_error* error = NULL;
///     bowline_model* model = NULL;
///     if (bl->model_open("model.bowline", NULL, &model, &error)) {
///       fprintf(stderr, "%s\n", bl->error_message(error));
///       bl->error_free(error);
///     }
///
/// Read `error` in a statement after the call. In `must(f(&error), error)`, a compiler may read it
/// before the call.
///
/// Each function does what its C++ counterpart in bowline.h, bowline_text.h or bowline_import.h
/// does. Its comment names the counterpart, for example "Model::tie()". The counterpart lists all
/// errors.
///
/// **Errors.** A function that can fail returns a bowline_code. 0 (BOWLINE_OK) is success. The last
/// parameter `error` receives an error object, if it is not NULL and the call failed. The caller
/// frees it with error_free(). If a call fails, it sets no other output.
///
/// **Outputs.** The parameter `out` must not be NULL, except in functions that declare a parameter
/// or add to a graph. Other outputs, such as `report`, may be NULL where the call does more than
/// return them.
///
/// **Structs.** The first member of each struct is `size`. Fill the struct with zeros, then set
/// `size` to sizeof the struct, and then the members that you need. A later version of the header
/// may have more members. Programs and libraries with older or newer versions of a struct then work
/// together. In an array, the first struct states the size of all of them. An init function sets
/// the other members of an options struct to their defaults. Instead of options, NULL means all
/// defaults.
///
/// **Handles.** The opaque types are handles. A handle is closed with its close function. A NULL
/// handle can be closed, too. A closed or wrong handle makes a call return BOWLINE_BAD_ARGUMENT.
/// The library recognizes the last 1,024 closed handles. Errors and buffers are not handles: free
/// each of them once. Handles can be closed in any order: a session, trainer or generator keeps its
/// model, and a model keeps its devices.
///
/// **Strings.** Strings are UTF-8 and end with a zero byte. A string that a function returns
/// directly belongs to its handle. A bowline_buffer belongs to the caller.
///
/// **Reports.** Reports and descriptions are JSON texts. Their members have the names of the C++
/// structs. An enum is its name, a set of settings is an object, and an integer is never rounded.
/// An infinity or NaN is null.
///
/// **Threads.** One thread at a time may use a model with its sessions, trainers, generators and
/// builders. A call from another thread at the same time returns BOWLINE_BAD_ARGUMENT, and so does
/// a call from a callback of the same model. The functions of devices, tokenizers and chat
/// templates, and all cancel functions, can be called from any thread. No other thread may use a
/// handle while it is closed.
///
/// **Callbacks.** A callback returns 0 or an error code. It can pass a sentence with
/// error_create(). It should not throw; an exception becomes BOWLINE_INTERNAL. `user` is passed
/// through. A callback must stay callable until its model, session or trainer is closed. Clones and
/// shares of a model keep its sources and formats, so they must be closed, too.
///
/// **fork().** In a child process, calls that use a device of the parent return
/// BOWLINE_DEVICE_LOST.
///
/// **Global state.** There is none, except the list of closed handles.
#ifndef BOWLINE_C_H
#define BOWLINE_C_H

#include "bowline_c/api.h"
#include "bowline_c/import.h"
#include "bowline_c/text.h"
#include "bowline_c/types.h"

#endif  // BOWLINE_C_H
