// What a Swift wrapper does around the C interface, in C.
//
// Swift passes strings and arrays as pointers that end with the call, holds opaque pointers in
// classes, and closes them when the last reference goes, in any order. A closure is a function and
// a context, which is retained while the library may call it. A failed call throws code and
// message.
#ifndef BOWLINE_SWIFT_WRAPPER_H
#define BOWLINE_SWIFT_WRAPPER_H

#include "bowline_c.h"

#define ROWS 8

/// The table. All programs in Swift would keep it in a global constant.
extern const bowline_api* api;

/// Ends the program if a condition is false.
#define EXPECT(condition) expect((condition) != 0, #condition, __FILE__, __LINE__)
void expect(int holds, const char* condition, const char* file, int line);

/// Copies of arguments in memory that is overwritten and freed when the call has returned.
typedef struct temporaries {
  void* blocks[64];
  size_t sizes[64];
  size_t count;
} temporaries;
void* temporary(temporaries* of, const void* from, size_t bytes);
const char* temporary_text(temporaries* of, const char* text);
void end_call(temporaries* of);

/// A Swift error.
typedef struct thrown {
  bowline_code code;
  char message[256];
} thrown;
/// Copies an error of the library, and frees it. Returns the code.
bowline_code take_error(bowline_code code, bowline_error* error, thrown* out);
/// Ends the program if a call failed. Its arguments may be evaluated in any order, so it takes
/// the address of the error.
void must(bowline_code code, bowline_error** error);

/// The context of a closure: counts its owners, as a Swift object does.
typedef struct closure {
  int references;
  int calls;
  const char* throws;  ///< (optional) The message of the error that it throws.
} closure;
closure* make_closure(const char* throws);
closure* retain(closure* of);
void release(closure* of);
int live_closures(void);
bowline_code call_hook(void* user, const char* of, float* gradient, uint64_t count,
                       bowline_error** error);
bowline_code call_source(void* user, uint64_t first, void* out, uint64_t bytes,
                         bowline_error** error);

/// Initializers and methods of the classes. All arguments are temporary.
bowline_device* open_device(const char* name);
bowline_model* make_model(bowline_device* device);
bowline_session* make_session(bowline_model* model, bowline_device* device);
bowline_trainer* make_trainer(bowline_model* model, bowline_device* device);
bowline_code train(bowline_trainer* trainer, float* loss, thrown* out);
bowline_code predict(bowline_session* session, float* y, thrown* out);

#endif  // BOWLINE_SWIFT_WRAPPER_H
