package bowline.runtime

/**
 * A model: its weights, graphs, tokenizer and metadata.
 *
 * One thread at a time may use a model with its sessions, trainers and generators. A call from another thread at the same time
 * throws `BAD_ARGUMENT`. [copyValuesFrom] and the cancel functions may be called from any thread.
 */
class Model private constructor(number: Long) : Handle("model", number) {
    /** ModelInfo as JSON. */
    val description: String get() = call { textOf(Native.modelDescribe(it)) }

    override fun free(number: Long) = Native.modelClose(number)

    /** Writes the model to a file. The file appears at once and complete, or not at all. */
    fun save(path: String) = call { Native.modelSave(it, utf8(path)) }

    /** Moves all weights to a device. */
    fun to(device: Device) = call { model -> device.call { Native.modelTo(model, it) } }

    /** A copy with the same values. It may be used while this model is in use. */
    fun copy(): Model = call { Model(Native.modelClone(it)) }

    /** Copies the values of all weights from a model with the same parameters. Waits while another thread uses one of the two. */
    fun copyValuesFrom(other: Model) = call { to -> other.call { Native.modelCopyValuesFrom(to, it) } }

    /** The text of a key, or an empty text. */
    fun metadata(key: String): String = call { textOf(Native.modelMetadata(it, utf8(key))) }

    fun setMetadata(key: String, value: String) = call { Native.modelSetMetadata(it, utf8(key), utf8(value)) }

    /** Reads a parameter into [out], whose name is the name of the parameter. */
    fun getValue(out: Tensor) = transfer(out) { model, t ->
        Native.modelGetValue(model, t.names[0], t.dtypes[0], t.shapes[0], t.data[0])
    }

    /** Writes a parameter. */
    fun setValue(value: Tensor) = transfer(value) { model, t ->
        Native.modelSetValue(model, t.names[0], t.dtypes[0], t.shapes[0], t.data[0])
    }

    private inline fun transfer(tensor: Tensor, native: (Long, NativeTensors) -> Unit) {
        if (!tensor.data.isDirect) {
            refuse("The buffer of tensor \"${tensor.name}\" is not direct. Tensor.allocate() makes a buffer that fits.")
        }
        call { native(it, NativeTensors(listOf(tensor))) }
    }

    /** Whether training leaves a parameter as it is. */
    fun freeze(name: String, frozen: Boolean = true) = call { Native.modelFreeze(it, utf8(name), frozen) }

    // Adapters (LoRA).

    /** Adds an adapter that training changes. Returns AdapterReport as JSON. */
    fun addAdapter(
        name: String, target: String = "*", rank: Long = 8, alpha: Float = 16f, dropout: Float = 0f,
        freezeOthers: Boolean = true, seed: Long = 0
    ): String = call {
        textOf(Native.modelAddAdapter(it, utf8(name), rank, alpha, dropout, utf8(target), freezeOthers, seed))
    }

    /** The names of the adapters, as JSON: a list. */
    val adapters: String get() = call { textOf(Native.modelAdapters(it)) }

    /** 1: the adapter as trained. 0: without the adapter. */
    fun setAdapterWeight(name: String, weight: Float) = call { Native.modelSetAdapterWeight(it, utf8(name), weight) }

    fun adapterWeight(name: String): Float = call { Native.modelAdapterWeight(it, utf8(name)) }

    fun removeAdapter(name: String) = call { Native.modelRemoveAdapter(it, utf8(name)) }

    /** Adds the change of the adapter to the weights, and removes the adapter. */
    fun mergeAdapter(name: String) = call { Native.modelMergeAdapter(it, utf8(name)) }

    /** Writes one adapter to a file. */
    fun saveAdapter(name: String, path: String) = call { Native.modelSaveAdapter(it, utf8(name), utf8(path)) }

    /** Reads an adapter. [name] null: its name in the file. Returns its name. */
    fun loadAdapter(path: String, name: String? = null): String =
        call { textOf(Native.modelLoadAdapter(it, utf8(path), utf8OrNull(name))) }

    companion object {
        /** Opens a `.bowline` file. [memoryMap] false: reads the whole file at once. */
        fun open(path: String, memoryMap: Boolean = true): Model = Model(Native.modelOpen(utf8(path), memoryMap))

        /**
         * Opens [count] bytes of an open file from [offset] on, for example an asset inside of an APK. [count] 0: up to the
         * end of the file. The descriptor may be closed afterwards.
         */
        fun openDescriptor(descriptor: Int, offset: Long = 0, count: Long = 0, memoryMap: Boolean = true): Model {
            if (offset < 0 || count < 0) {
                refuse("The range of the file begins at $offset and has $count bytes, but both must be at least 0.")
            }
            return Model(Native.modelOpenDescriptor(descriptor, offset, count, memoryMap))
        }
    }
}
