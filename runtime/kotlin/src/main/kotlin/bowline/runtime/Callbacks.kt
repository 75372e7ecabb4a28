package bowline.runtime

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.util.concurrent.ConcurrentHashMap
import java.util.concurrent.atomic.AtomicLong

/** A gradient hook, and what it threw. */
internal class Hook(val function: (String, FloatBuffer) -> Unit) {
    @Volatile
    var thrown: Throwable? = null
}

/** What a submitted run needs until it ends: native code writes to the buffers. */
internal class Submitted(val arguments: Any, val done: ((BowlineException?) -> Unit)?)

/**
 * The callbacks that the library may call. Native code passes their numbers, so it keeps no reference to objects, and a
 * callback that was removed is not called. Native code calls log(), gradient() and done(), from any thread. They throw nothing.
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
            // A message cannot stop the work that it describes.
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

    @JvmStatic
    fun done(id: Long, code: Int, message: ByteArray) {
        val run = all.remove(id) as? Submitted ?: return
        try {
            run.done?.invoke(if (code == 0) null else BowlineException(code, message))
        } catch (ignored: Throwable) {
            // The run has ended; there is no caller who could get the exception.
        }
    }
}
