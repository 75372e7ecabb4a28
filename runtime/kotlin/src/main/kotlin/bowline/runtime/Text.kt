package bowline.runtime

/** Splits text into tokens. Any thread may use it. */
class Tokenizer private constructor(number: Long) : Handle("tokenizer", number) {
    /** Number of tokens in the vocabulary. */
    val size: Long get() = call { Native.tokenizerSize(it) }

    override fun free(number: Long) = Native.tokenizerClose(number)

    /** [specialTokens]: adds those that the model expects around a text. [parseSpecial]: finds them in the text. */
    fun encode(text: String, specialTokens: Boolean = true, parseSpecial: Boolean = false): IntArray =
        call { Native.tokenizerEncode(it, utf8(text, mayHaveZeros = true), specialTokens, parseSpecial) }

    /** The text of tokens. Bytes that are no UTF-8 become U+FFFD. */
    fun decode(ids: IntArray, skipSpecial: Boolean = true): String =
        call { textOf(Native.tokenizerDecode(it, ids, skipSpecial)) }

    /** Decodes token by token. A character may be in several tokens. */
    fun stream(skipSpecial: Boolean = true): Decoder = call { Decoder(Native.tokenizerStream(it, skipSpecial)) }

    companion object {
        /** The tokenizer of a model. */
        fun of(model: Model): Tokenizer = model.call { Tokenizer(Native.tokenizerFrom(it)) }

        /** Each byte is a token. */
        fun ofBytes(): Tokenizer = Tokenizer(Native.tokenizerOfBytes())
    }
}

/** One thread at a time may use it. */
class Decoder internal constructor(number: Long) : Handle("decoder", number) {
    override fun free(number: Long) = Native.decoderClose(number)

    /** The text that is complete with this token. It may be empty. */
    fun next(id: Int): String = call { textOf(Native.decoderNext(it, id)) }

    /** The rest of the text. */
    fun flush(): String = call { textOf(Native.decoderFlush(it)) }
}

/** How the next token is chosen, as SamplerOptions in bowline_text.h. */
class Sampler(
    /** 0: the most probable token. */
    val temperature: Float = 0f,
    /** 0: all tokens. */
    val topK: Int = 0,
    val topP: Float = 1f,
    val minP: Float = 0f,
    val repetitionPenalty: Float = 1f,
    val repetitionWindow: Int = 64,
    val seed: Long = 0
)

/** Continues a text, token by token. */
class Generator private constructor(number: Long) : Handle("generator", number) {
    /** The text so far. */
    val tokens: IntArray get() = call { Native.generatorTokens(it) }

    /** Whether the context has room for another token. */
    val hasRoom: Boolean get() = call { Native.generatorHasRoom(it) }

    override fun free(number: Long) = Native.generatorClose(number)

    /** Appends tokens to the text. */
    fun feed(ids: IntArray) = call { Native.generatorFeed(it, ids) }

    /** Chooses the next token and appends it. */
    fun next(): Int = call { Native.generatorNext(it) }

    /** Whether the model ends a text with this token. */
    fun isStop(id: Int): Boolean = call { Native.generatorIsStop(it, id) }

    /** Keeps the first [length] tokens of the text. */
    fun rewind(length: Long) {
        if (length < 0) {
            refuse("A text cannot have $length tokens.")
        }
        call { Native.generatorRewind(it, length) }
    }

    /** Stops [next] and [feed], which then throw `CANCELLED`. Any thread may call it. */
    fun cancel() = call { Native.generatorCancel(it) }

    /**
     * Continues [prompt] and passes each new part of the text to [onText], until the model ends the text, the context is full,
     * [maxTokens] tokens are made, or [onText] returns false. Returns the new text. What [onText] throws is thrown.
     */
    fun generate(tokenizer: Tokenizer, prompt: String, maxTokens: Int, onText: (String) -> Boolean = { true }): String {
        val all = StringBuilder()
        feed(tokenizer.encode(prompt))
        tokenizer.stream().use { decoder ->
            var wanted = true
            var made = 0
            while (wanted && made < maxTokens && hasRoom) {
                val id = next()
                ++made
                if (isStop(id)) {
                    break
                }
                val part = decoder.next(id)
                all.append(part)
                wanted = part.length == 0 || onText(part)
            }
            val rest = decoder.flush()
            all.append(rest)
            if (wanted && rest.length > 0) {
                onText(rest)
            }
        }
        return all.toString()
    }

    companion object {
        /** [context]: the largest number of tokens. 0: the one of the model. */
        fun create(
            model: Model, device: Device, context: Long = 0, sampler: Sampler = Sampler(), computeDtype: DType? = null
        ): Generator = model.call { m ->
            device.call {
                Generator(
                    Native.generatorCreate(
                        m, it, context, numberOf(computeDtype), sampler.temperature, sampler.topK, sampler.topP,
                        sampler.minP, sampler.repetitionPenalty, sampler.repetitionWindow, sampler.seed
                    )
                )
            }
        }
    }
}
