"""The exceptions of the package."""


class Error(Exception):
    """An error of the library.

    code is the name of the kind of error, for example "bad_file" or "out_of_memory". The text of
    the exception says what failed.
    """

    def __init__(self, message: str, code: str = "internal") -> None:
        super().__init__(message)
        self.code = code


class ExportError(Error, BufferError):
    """A buffer of a device cannot be exported through DLPack."""
