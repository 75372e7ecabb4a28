package bowline.runtime

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/** A gradient hook, and the exception that it threw, if any. */
internal class Hook(val function: (String, FloatBuffer) -> Unit) {
    @Volatile
    var thrown: Throwable? = null
}

/** Keeps the buffers of a submitted run reachable until the run ends, because native code uses their memory. */
internal class Submitted(val arguments: Any, val done: ((BowlineException?) -> Unit)?)

/**
 * The callbacks that the library may call, by number. Native code has only the numbers. So it keeps no reference to Kotlin
 * objects, and it cannot call a callback that was removed.
 *
 * Native code calls log() and done() in any thread, and gradient() and importing() in the thread of the call. They throw
 * nothing.
 */
internal object Callbacks {
    private val all = ConcurrentHashMap<Long, Any>()
    private val last = AtomicLong()

    fun add(callback: Any): Long = last.incrementAndGet().also { all[it] = callback }

    fun remove(id: Long) {
        all.remove(id)
    }

    fun count(): Int = all.size

    @JvmStatic
    fun log(id: Long, level: Int, message: ByteArray) {
        @Suppress("UNCHECKED_CAST")
        val callback = all[id] as? (LogLevel, String) -> Unit ?: return
        try {
            callback(LogLevel.of(level), textOf(message))
        } catch (ignored: Throwable) {
            // An exception of the callback must not stop the work that the message describes.
        }
    }

    @JvmStatic
    fun gradient(id: Long, of: ByteArray, gradient: ByteBuffer): Int {
        val hook = all[id] as? Hook ?: return Code.OK.ordinal
        return try {
            hook.function(textOf(of), gradient.order(ByteOrder.nativeOrder()).asFloatBuffer())
            Code.OK.ordinal
        } catch (thrown: Throwable) {
            hook.thrown = thrown
            Code.CANCELLED.ordinal
        }
    }

    /** Returns 1 to stop the import, else 0. */
    @JvmStatic
    fun importing(id: Long, part: Int, done: Long, total: Long): Int {
        val importing = all[id] as? Importing ?: return 0
        return try {
            if (importing.function(ImportPart.values()[part], done, total)) 0 else 1
        } catch (thrown: Throwable) {
            importing.thrown = thrown
            1
        }
    }

    @JvmStatic
    fun done(id: Long, code: Int, message: ByteArray) {
        val run = all.remove(id) as? Submitted ?: return
        try {
            run.done?.invoke(if (code == 0) null else BowlineException(code, message))
        } catch (ignored: Throwable) {
            // The run has ended, so no caller is left who could catch the exception.
        }
    }
}
