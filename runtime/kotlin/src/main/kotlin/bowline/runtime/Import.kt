package bowline.runtime

/** The formats of models; see ImportFormat in bowline_import.h. */
enum class ImportFormat { HUGGING_FACE, GGUF, ONNX }

/** The task of a text model, which determines its entry points. */
enum class ImportTask {
    /** A decoder that predicts the next token. */
    GENERATE,
    /** An encoder or decoder with a classification head. */
    CLASSIFY,
    /** An encoder or decoder whose output is one vector per text. */
    EMBED,
    /** An encoder or decoder that gives each token a label. */
    TAG
}

/** What an import reads while it reports its progress. */
enum class ImportPart { FILES, BYTES, TENSORS, NODES }

/** Options for Hugging Face folders and GGUF files; TextImportOptions in bowline_import.h explains them. */
class TextImportOptions(
    /** null: the task of the source. */
    val task: ImportTask? = null,
    /** Names of the classes, in order. Empty: the labels of the source. */
    val labels: List<String> = listOf(),
    /** F32, F16 or BF16. null: each weight keeps its dtype. */
    val dtype: DType? = null,
    /** Dtype of the KV cache: F32, F16, BF16 or I8. */
    val kvDtype: DType = DType.F32,
    /** "mean", "cls", "last" or "max". Empty: that of the source, else "mean", or "last" for a decoder. */
    val pooling: String = "",
    /** A text can have several labels. */
    val multiLabel: Boolean = false,
    /** Of the classification loss, at least 0 and below 1. */
    val labelSmoothing: Double = 0.0,
    /** Widths of shortened embeddings, which the losses also train. */
    val matryoshka: LongArray = longArrayOf(),
    /** Pairs of tensors to tie. Their values must be equal. */
    val ties: List<Pair<String, String>> = listOf(),
    /** Ties all tensors with equal values. */
    val tieEqual: Boolean = false,
    /** The loss uses the dropout rates of the config. */
    val dropout: Boolean = false,
    /** Random seed of weights that the source lacks. */
    val seed: Long = 0,
    /** Reads only config.json. The parameters have shapes but no values. */
    val skeleton: Boolean = false
)

/** Options for ONNX files; OnnxImportOptions in bowline_import.h explains them. */
class OnnxImportOptions(
    /** Name of the entry point. */
    val entry: String = "forward",
    /** Sizes of dimensions that have a name in the file. */
    val dims: Map<String, Long> = mapOf(),
    /** Whole shapes of inputs. -1 marks the axis of the batch. */
    val shapes: Map<String, LongArray> = mapOf(),
    /** Name of the dimension whose size each run chooses. Empty: all sizes are fixed. */
    val batchDim: String = "",
    /** Values of inputs that become constants. One value fills any shape. */
    val given: Map<String, DoubleArray> = mapOf(),
    /** Patterns of tensors to train although they look like constants. */
    val trainable: List<String> = listOf(),
    /** Patterns of parameters that are frozen. */
    val freeze: List<String> = listOf(),
    /** Ties trained matrices with equal values, and merges equal layers into one Repeat. */
    val tieEqual: Boolean = false
)

/** Options of [importModel]. Each format uses one of the two groups. The other group must have its defaults. */
class ImportOptions(
    val text: TextImportOptions = TextImportOptions(),
    val onnx: OnnxImportOptions = OnnxImportOptions()
)

/** The result of [importModel]. [report] has the members of ImportReport (bowline_import.h) as a JSON object. */
class ImportedModel internal constructor(val model: Model, val report: String) {
    /**
     * The weights with values that are NaN or infinite, as a JSON array of NotFiniteTensor. It knows only weights that were
     * read from the first to the last byte.
     */
    val notFinite: String get() = model.call { textOf(Native.modelNotFinite(it)) }
}

/** The progress function of an import, and the exception that it threw, if any. */
internal class Importing(val function: (ImportPart, Long, Long) -> Boolean) {
    @Volatile
    var thrown: Throwable? = null
}

/**
 * Returns the format of a file or folder. Throws `BAD_FILE` if it does not exist or is a Bowline model file, and `UNSUPPORTED`
 * if the native library was built without the import.
 */
fun importFormat(path: String): ImportFormat = ImportFormat.values()[Native.importFormat(utf8(path))]

/**
 * Reads a model of another format: a Hugging Face folder, a GGUF file or an ONNX file. The model reads its weights from these
 * files when it needs them, so do not change the files. Any thread may call it.
 *
 * Calls [progress] often, in the thread of the call: what it reads, how much is done, and the total. If [progress] returns
 * false, the import throws `CANCELLED`. If it throws an exception, the import throws this exception.
 *
 * The native library has the import only if it was built with BOWLINE_IMPORT=ON. Otherwise, this function throws `UNSUPPORTED`.
 */
fun importModel(
    path: String, options: ImportOptions = ImportOptions(), progress: ((ImportPart, Long, Long) -> Boolean)? = null
): ImportedModel {
    val importing = progress?.let { Importing(it) }
    val id = importing?.let { Callbacks.add(it) } ?: 0
    val number = LongArray(1)
    try {
        val report = nativeImport(path, options, id, number)
        return ImportedModel(Model(number[0]), textOf(report))
    } catch (failure: BowlineException) {
        throw importing?.thrown ?: failure
    } finally {
        Callbacks.remove(id)
    }
}

private fun nativeImport(path: String, options: ImportOptions, progress: Long, number: LongArray): ByteArray {
    val text = options.text
    val onnx = options.onnx
    val dims = NativeDims(onnx.dims)
    return Native.importModel(
        utf8(path), text.task?.ordinal ?: -1, texts(text.labels), numberOf(text.dtype), numberOf(text.kvDtype),
        utf8(text.pooling), text.multiLabel, text.labelSmoothing, text.matryoshka, texts(text.ties.flatMap { listOf(it.first, it.second) }),
        text.tieEqual, text.dropout, text.seed, text.skeleton, utf8(onnx.entry), dims.names, dims.sizes,
        texts(onnx.shapes.keys), onnx.shapes.values.toTypedArray(), utf8(onnx.batchDim), texts(onnx.given.keys),
        onnx.given.values.toTypedArray(), texts(onnx.trainable), texts(onnx.freeze), onnx.tieEqual, progress, number
    )
}

private fun texts(from: Collection<String>): Array<ByteArray> = from.map { utf8(it) }.toTypedArray()

/**
 * Adds a LoRA adapter of another format to a model: a PEFT folder or a GGUF adapter. The model must be one that [importModel]
 * made, or the same model, saved and opened again. Returns the members of AdapterReport (bowline/adapters.h) as a JSON object.
 *
 * Throws `UNSUPPORTED` if the native library was built without the import.
 */
fun Model.importAdapter(path: String, name: String = "lora"): String =
    call { textOf(Native.modelImportAdapter(it, utf8(path), utf8(name))) }
