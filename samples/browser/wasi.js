// The part of WASI that the program of this folder needs, over files in memory.
//
// WASI (preview 1) is the system interface of WebAssembly programs. Every call returns 0 or one of
// the error numbers below. Pointers are offsets in the memory of the program.
const BADF = 8, EXIST = 20, INVAL = 28, ISDIR = 31, NOENT = 44, NOSYS = 52, NOTDIR = 54;
const FOLDER = 3, REGULAR = 4, TERMINAL = 2;
const CREATE = 1, DIRECTORY = 2, EXCLUSIVE = 4, TRUNCATE = 8;  // flags of path_open
const ROOT = 3;  // the descriptor of the only folder

class Exit extends Error {
  constructor(code) {
    super(`exit code ${code}`);
    this.code = code;
  }
}

// A file that grows. `bytes` has room for more than the `size` bytes of the file.
class File {
  constructor(bytes = new Uint8Array()) {
    this.bytes = bytes;
    this.size = bytes.length;
    this.number = File.next++;
  }
  resize(size) {
    if (size > this.bytes.length) {
      const larger = new Uint8Array(Math.max(size, 2 * this.bytes.length));
      larger.set(this.bytes.subarray(0, this.size));
      this.bytes = larger;
    }
    this.bytes.fill(0, Math.min(size, this.size), Math.max(size, this.size));
    this.size = size;
  }
  contents() {
    return this.bytes.slice(0, this.size);
  }
}
File.next = 1n;

// Runs a program with the files, an object of name and Uint8Array. Calls `print(text)` with what
// it prints. Returns { code, files }: the exit code, and the files afterwards.
export async function run(module, args, files, print) {
  const folder = new Map(Object.entries(files).map(([name, bytes]) => [name, new File(bytes)]));
  const opened = new Map();  // descriptor -> { file, position }
  const encode = (text) => new TextEncoder().encode(text);
  const decoder = new TextDecoder();
  let memory = null;
  const bytes = () => new Uint8Array(memory.buffer);
  const view = () => new DataView(memory.buffer);
  const text = (at, length) => new TextDecoder().decode(bytes().slice(at, at + length));
  const name = (at, length) => text(at, length).replace(/^(\.\/)+/, '');

  // Calls part(start, length) for every buffer of a list. `part` returns the bytes that it used.
  const each = (list, count, part) => {
    let total = 0;
    for (let i = 0; i < count; ++i) {
      const length = view().getUint32(list + 8 * i + 4, true);
      const used = part(view().getUint32(list + 8 * i, true), length);
      total += used;
      if (used < length) {
        break;
      }
    }
    return total;
  };
  const put32 = (at, value) => view().setUint32(at, value, true);
  const put64 = (at, value) => view().setBigUint64(at, BigInt(value), true);
  const texts = (list, pointers, at) => {
    for (const [i, one] of list.entries()) {
      put32(pointers + 4 * i, at);
      bytes().set(encode(one + '\0'), at);
      at += encode(one).length + 1;
    }
    return 0;
  };
  const sizes = (list, count, length) => {
    put32(count, list.length);
    put32(length, list.reduce((sum, one) => sum + encode(one).length + 1, 0));
    return 0;
  };
  const describe = (at, kind, file) => {
    bytes().fill(0, at, at + 64);
    put64(at + 8, file ? file.number : 0);
    view().setUint8(at + 16, kind);
    put64(at + 24, 1);
    put64(at + 32, file ? file.size : 0);
    return 0;
  };
  const read = (file, position, list, count) => each(list, count, (at, length) => {
    const piece = file.bytes.subarray(Number(position), Math.min(Number(position) + length, file.size));
    bytes().set(piece, at);
    position = Number(position) + piece.length;
    return piece.length;
  });

  const calls = {
    args_sizes_get: (count, length) => sizes(args, count, length),
    args_get: (pointers, at) => texts(args, pointers, at),
    environ_sizes_get: (count, length) => sizes([], count, length),
    environ_get: () => 0,
    clock_time_get: (clock, precision, at) => {
      const ms = clock === 0 ? Date.now() : performance.now();
      put64(at, Math.round(ms * 1e6));
      return 0;
    },
    proc_exit: (code) => {
      throw new Exit(code);
    },
    fd_prestat_get: (fd, at) => {
      if (fd !== ROOT) {
        return BADF;
      }
      put32(at, 0);
      put32(at + 4, 1);
      return 0;
    },
    fd_prestat_dir_name: (fd, at) => {
      bytes().set(encode('.'), at);
      return fd === ROOT ? 0 : BADF;
    },
    fd_fdstat_get: (fd, at) => {
      const kind = fd < ROOT ? TERMINAL : fd === ROOT ? FOLDER : REGULAR;
      bytes().fill(0, at, at + 24);
      view().setUint8(at, opened.get(fd)?.isFolder ? FOLDER : kind);
      view().setBigUint64(at + 8, ~0n, true);
      view().setBigUint64(at + 16, ~0n, true);
      return kind !== REGULAR || opened.has(fd) ? 0 : BADF;
    },
    fd_fdstat_set_flags: () => 0,
    fd_filestat_get: (fd, at) => {
      const open = opened.get(fd);
      if (!open && fd > ROOT) {
        return BADF;
      }
      return describe(at, fd < ROOT ? TERMINAL : open?.file ? REGULAR : FOLDER, open?.file);
    },
    fd_filestat_set_size: (fd, size) => {
      opened.get(fd)?.file.resize(Number(size));
      return opened.has(fd) ? 0 : BADF;
    },
    fd_read: (fd, list, count, done) => {
      const open = opened.get(fd);
      if (!open?.file) {
        return fd === 0 ? (put32(done, 0), 0) : BADF;
      }
      const n = read(open.file, open.position, list, count);
      open.position += n;
      put32(done, n);
      return 0;
    },
    fd_pread: (fd, list, count, position, done) => {
      const open = opened.get(fd);
      if (!open?.file) {
        return BADF;
      }
      put32(done, read(open.file, position, list, count));
      return 0;
    },
    fd_write: (fd, list, count, done) => {
      const open = opened.get(fd);
      if (!open?.file && fd !== 1 && fd !== 2) {
        return BADF;
      }
      put32(done, each(list, count, (at, length) => {
        const piece = bytes().slice(at, at + length);
        if (!open) {
          print(decoder.decode(piece, { stream: true }));
          return length;
        }
        if (open.position + length > open.file.size) {
          open.file.resize(open.position + length);
        }
        open.file.bytes.set(piece, open.position);
        open.position += length;
        return length;
      }));
      return 0;
    },
    fd_seek: (fd, offset, from, at) => {
      const open = opened.get(fd);
      if (!open?.file) {
        return BADF;
      }
      const position = Number(offset) + [0, open.position, open.file.size][from];
      if (!(position >= 0)) {
        return INVAL;
      }
      open.position = position;
      put64(at, position);
      return 0;
    },
    fd_sync: () => 0,
    fd_close: (fd) => opened.delete(fd) || fd <= ROOT ? 0 : BADF,
    path_create_directory: () => NOSYS,
    path_filestat_get: (fd, follow, at, length, out) => {
      const path = name(at, length);
      if (path === '.' || path === '') {
        return describe(out, FOLDER, null);
      }
      return folder.has(path) ? describe(out, REGULAR, folder.get(path)) : NOENT;
    },
    path_open: (fd, follow, at, length, flags, rights, inheriting, fdflags, out) => {
      const path = name(at, length), isFolder = path === '.' || path === '';
      if (!isFolder && flags & DIRECTORY) {
        return folder.has(path) ? NOTDIR : NOENT;
      }
      if (isFolder && flags & CREATE) {
        return ISDIR;
      }
      if (!isFolder && folder.has(path) && flags & EXCLUSIVE) {
        return EXIST;
      }
      if (!isFolder && !folder.has(path)) {
        if (!(flags & CREATE)) {
          return NOENT;
        }
        folder.set(path, new File());
      }
      const file = isFolder ? null : folder.get(path);
      if (file && flags & TRUNCATE) {
        file.resize(0);
      }
      let number = ROOT + 1;
      while (opened.has(number)) {
        ++number;
      }
      opened.set(number, { file, isFolder, position: 0 });
      put32(out, number);
      return 0;
    },
    path_rename: (from_fd, from, from_length, to_fd, to, to_length) => {
      const source = name(from, from_length);
      if (!folder.has(source)) {
        return NOENT;
      }
      folder.set(name(to, to_length), folder.get(source));
      folder.delete(source);
      return 0;
    },
    path_unlink_file: (fd, at, length) => folder.delete(name(at, length)) ? 0 : NOENT,
  };
  // A program may import more than it calls.
  const imports = {};
  for (const { name: call } of WebAssembly.Module.imports(module)) {
    imports[call] = calls[call] ?? (() => NOSYS);
  }
  const instance = await WebAssembly.instantiate(module, { wasi_snapshot_preview1: imports });
  memory = instance.exports.memory;
  let code = 0;
  try {
    instance.exports._start();
  } catch (error) {
    if (!(error instanceof Exit)) {
      throw error;
    }
    code = error.code;
  }
  return { code, files: Object.fromEntries([...folder].map(([path, file]) => [path, file.contents()])) };
}
