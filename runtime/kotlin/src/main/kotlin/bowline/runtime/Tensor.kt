package bowline.runtime

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.nio.IntBuffer

/** The type of the elements of a tensor. [bytes] is the size of an element. */
enum class DType(val bytes: Int) {
    F32(4),
    F16(2),
    BF16(2),
    I8(1),
    U8(1),
    I32(4),
    I64(8),
    BOOL(1)
}

internal fun numberOf(dtype: DType?): Int = dtype?.ordinal ?: -1

/**
 * An input, an output or a parameter, by name. Its values are row-major.
 *
 * [data] contains the values between its position and its limit, in native byte order. The library uses this memory without a
 * copy, so [data] must be a direct buffer. [Tensor.allocate] makes one.
 */
class Tensor(val name: String, val dtype: DType, val shape: LongArray, val data: ByteBuffer) {
    /** A view of [data] as floats, for [DType.F32]. Writing to the view changes the tensor. */
    val floats: FloatBuffer get() = elements().asFloatBuffer()

    /** A view of [data] as integers, for [DType.I32]. Writing to the view changes the tensor. */
    val ints: IntBuffer get() = elements().asIntBuffer()

    private fun elements() = data.duplicate().order(ByteOrder.nativeOrder())

    companion object {
        /** Returns a tensor of zeros. */
        fun allocate(name: String, dtype: DType, vararg shape: Long): Tensor {
            val bytes = shape.fold(dtype.bytes.toLong()) { product, size -> Math.multiplyExact(product, size) }
            if (bytes < 0 || bytes > Int.MAX_VALUE) {
                refuse("A buffer of Java cannot have the $bytes bytes of the tensor \"$name\".")
            }
            val data = ByteBuffer.allocateDirect(bytes.toInt()).order(ByteOrder.nativeOrder())
            return Tensor(name, dtype, shape, data)
        }
    }
}

/** Tensors as arrays, for native code. */
internal class NativeTensors(tensors: List<Tensor>) {
    val names: Array<ByteArray> = tensors.map { utf8(it.name) }.toTypedArray()
    val dtypes: IntArray = tensors.map { it.dtype.ordinal }.toIntArray()
    val shapes: Array<LongArray> = tensors.map { it.shape.clone() }.toTypedArray()
    val data: Array<ByteBuffer> = tensors.map { it.data.slice() }.toTypedArray()

    companion object {
        fun of(inputs: List<Tensor>, outputs: List<Tensor>): NativeTensors {
            for (output in outputs) {
                if (output.data.isReadOnly) {
                    refuse("The buffer of output \"${output.name}\" is read-only.")
                }
            }
            return NativeTensors(inputs + outputs)
        }
    }
}

/** A per-step scalar of an entry point: a value that can change with each run, such as "position". */
class Scalar private constructor(internal val name: String, internal val value: Double, internal val isFloat: Boolean) {
    constructor(name: String, value: Float) : this(name, value.toDouble(), true)
    constructor(name: String, value: Int) : this(name, value.toDouble(), false)
}

internal class NativeScalars(scalars: List<Scalar>) {
    val names: Array<ByteArray> = scalars.map { utf8(it.name) }.toTypedArray()
    val values: DoubleArray = scalars.map { it.value }.toDoubleArray()
    val isFloat: BooleanArray = scalars.map { it.isFloat }.toBooleanArray()
}
