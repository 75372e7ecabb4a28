package bowline.runtime

/** The kind of an error. Each kind says what the caller should do. The kinds are those of bowline_c/types.h. */
enum class Code {
    /** No error. */
    OK,
    /** Fix the call. */
    BAD_ARGUMENT,
    /** Do not use this file. */
    BAD_FILE,
    /** Fix the input data. */
    INDEX_OUT_OF_RANGE,
    /** Choose another device, model or precision. */
    UNSUPPORTED,
    /** Look for the cause of the infinity or NaN. */
    NON_FINITE,
    /** Free memory of the host or the device. */
    OUT_OF_MEMORY,
    /** Raise the budget, if you trust the file. */
    OVER_BUDGET,
    /** Try again, or choose another path. */
    IO_ERROR,
    /** Open the device again. */
    DEVICE_LOST,
    /** Restart the process. */
    DEVICE_POISONED,
    /** The program cancelled the call. */
    CANCELLED,
    /** Report a bug. */
    INTERNAL;

    internal companion object {
        fun of(number: Int): Code = values().getOrElse(number) { INTERNAL }
    }
}

/** A failed call. The message is a sentence: what failed, with the values, and why. */
class BowlineException(val code: Code, message: String) : RuntimeException(message) {
    /** For native code: the message in UTF-8. */
    internal constructor(code: Int, message: ByteArray) : this(Code.of(code), message.toString(Charsets.UTF_8))
}

internal fun refuse(message: String): Nothing = throw BowlineException(Code.BAD_ARGUMENT, message)
