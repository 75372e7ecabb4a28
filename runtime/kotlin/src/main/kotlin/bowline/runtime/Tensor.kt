package bowline.runtime

import java.nio.ByteBuffer
import java.nio.ByteOrder
import java.nio.FloatBuffer
import java.nio.IntBuffer

/** The type of an element, with its size in bytes. */
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
 * A tensor in a direct buffer, whose memory the library uses without a copy. It is row-major.
 *
 * [data] has the elements between its position and its limit, in native byte order. A buffer on the heap is refused:
 * [Tensor.allocate] makes a direct one.
 */
class Tensor(val name: String, val dtype: DType, val shape: LongArray, val data: ByteBuffer) {
    /** The elements as floats. For [DType.F32]. */
    val floats: FloatBuffer get() = elements().asFloatBuffer()

    /** The elements as integers. For [DType.I32]. */
    val ints: IntBuffer get() = elements().asIntBuffer()

    private fun elements() = data.duplicate().order(ByteOrder.nativeOrder())

    companion object {
        /** A tensor of zeros. */
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

/** Tensors as native code reads them. */
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

/** A per-step scalar of an entry point. */
class Scalar private constructor(internal val name: String, internal val value: Double, internal val isFloat: Boolean) {
    constructor(name: String, value: Float) : this(name, value.toDouble(), true)
    constructor(name: String, value: Int) : this(name, value.toDouble(), false)
}

internal class NativeScalars(scalars: List<Scalar>) {
    val names: Array<ByteArray> = scalars.map { utf8(it.name) }.toTypedArray()
    val values: DoubleArray = scalars.map { it.value }.toDoubleArray()
    val isFloat: BooleanArray = scalars.map { it.isFloat }.toBooleanArray()
}
