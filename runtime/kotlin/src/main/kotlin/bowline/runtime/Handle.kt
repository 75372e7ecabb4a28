package bowline.runtime

import java.io.Closeable
import java.nio.CharBuffer
import java.nio.charset.CharacterCodingException

/**
 * Owns a native object, such as a model. Call [close] when you no longer need it, best with `use { }`. The garbage collector
 * does not free the native memory.
 *
 * You may close handles in any order, and more than once. Other calls on a closed handle throw `BAD_ARGUMENT`. [close] throws
 * `BAD_ARGUMENT` while a call uses the handle, also if a callback of this call closes it.
 */
abstract class Handle internal constructor(private val what: String, private var number: Long) : Closeable {
    private var calls = 0

    internal abstract fun free(number: Long)

    /** Runs [block] with the native pointer. The handle cannot be closed until [block] ends. */
    internal inline fun <T> call(block: (Long) -> T): T {
        val pointer = enter()
        try {
            return block(pointer)
        } finally {
            leave()
        }
    }

    @Synchronized
    internal fun enter(): Long {
        if (number == 0L) {
            refuse("The $what is closed.")
        }
        ++calls
        return number
    }

    @Synchronized
    internal fun leave() {
        --calls
    }

    @Synchronized
    private fun takeNumber(): Long {
        if (calls > 0) {
            refuse("The $what cannot be closed, because a call uses it. Cancel the call, and wait until it ends.")
        }
        return number.also { number = 0 }
    }

    @Synchronized
    private fun putBack(pointer: Long) {
        number = pointer
    }

    override fun close() {
        val pointer = takeNumber()
        if (pointer == 0L) {
            return
        }
        try {
            free(pointer) // without the lock, because callbacks of the last run may use the handle
        } catch (failure: BowlineException) {
            putBack(pointer)
            throw failure
        }
    }
}

/** The text in UTF-8, with a zero byte at the end, for native code. */
internal fun utf8(text: String, mayHaveZeros: Boolean = false): ByteArray {
    if (!mayHaveZeros && text.indexOf('\u0000') >= 0) {
        refuse("The text \"${text.replace("\u0000", "\\0")}\" has a zero character.")
    }
    try {
        val bytes = Charsets.UTF_8.newEncoder().encode(CharBuffer.wrap(text))
        return ByteArray(bytes.remaining() + 1).also { bytes.get(it, 0, it.size - 1) }
    } catch (wrong: CharacterCodingException) {
        refuse("The text has one half of a surrogate pair, so it cannot be UTF-8.")
    }
}

internal fun utf8OrNull(text: String?): ByteArray? = text?.let { utf8(it) }

internal fun textOf(utf8: ByteArray): String = utf8.toString(Charsets.UTF_8)

/** Names and sizes of dimensions, as native code reads them. */
internal class NativeDims(dims: Map<String, Long>) {
    val names: Array<ByteArray> = dims.keys.map { utf8(it) }.toTypedArray()
    val sizes: LongArray = dims.values.toLongArray()
}
