package bowline.runtime

/** Converts text to tokens and tokens to text. Any thread may use it. */
class Tokenizer private constructor(number: Long) : Handle("tokenizer", number) {
    /** The highest token id plus 1. */
    val size: Long get() = call { Native.tokenizerSize(it) }

    override fun free(number: Long) = Native.tokenizerClose(number)

    /**
     * Converts text to token ids. [specialTokens]: adds the special tokens that the model expects, such as the start of a
     * text. [parseSpecial]: a special token that is spelled in the text becomes one token.
     */
    fun encode(text: String, specialTokens: Boolean = true, parseSpecial: Boolean = true): IntArray =
        call { Native.tokenizerEncode(it, utf8(text, mayHaveZeros = true), specialTokens, parseSpecial) }

    /** Converts token ids to text. [skipSpecial]: leaves out special tokens. Bytes that are not UTF-8 become U+FFFD. */
    fun decode(ids: IntArray, skipSpecial: Boolean = true): String =
        call { textOf(Native.tokenizerDecode(it, ids, skipSpecial)) }

    /** Returns a [Decoder], which converts one token at a time. Use it for text that is shown while it is generated. */
    fun stream(skipSpecial: Boolean = true): Decoder = call { Decoder(Native.tokenizerStream(it, skipSpecial)) }

    companion object {
        /** Returns the tokenizer that the model file contains. Throws `BAD_ARGUMENT` if it contains none. */
        fun of(model: Model): Tokenizer = model.call { Tokenizer(Native.tokenizerFrom(it)) }

        /** Returns a tokenizer with 256 tokens: the id of a token is its byte. */
        fun ofBytes(): Tokenizer = Tokenizer(Native.tokenizerOfBytes())
    }
}

/** Converts tokens to text one by one. One thread at a time may use it. */
class Decoder internal constructor(number: Long) : Handle("decoder", number) {
    override fun free(number: Long) = Native.decoderClose(number)

    /** Adds a token and returns the text that is complete now. It may be empty: a character can consist of several tokens. */
    fun next(id: Int): String = call { textOf(Native.decoderNext(it, id)) }

    /** Returns the text that is still held back, at the end of the tokens. */
    fun flush(): String = call { textOf(Native.decoderFlush(it)) }
}

/** How the next token is chosen; see SamplerOptions in bowline_text.h. */
class Sampler(
    /** Higher values make the text more random. 0: always the most probable token. */
    val temperature: Float = 0f,
    /** Chooses among the topK most probable tokens. 0: among all. */
    val topK: Int = 0,
    /** Chooses among the most probable tokens that together reach this probability. */
    val topP: Float = 1f,
    /** Chooses among tokens with at least minP times the largest probability. */
    val minP: Float = 0f,
    /** Makes recent tokens less probable if it is above 1. 1 disables the penalty. */
    val repetitionPenalty: Float = 1f,
    /** Number of recent tokens to which the penalty applies. */
    val repetitionWindow: Int = 64,
    /** The same seed and the same text give the same next token. */
    val seed: Long = 0
)

/** Generates text token by token. A model can have one generator at a time. */
class Generator private constructor(number: Long) : Handle("generator", number) {
    /** All tokens so far, including the prompt. */
    val tokens: IntArray get() = call { Native.generatorTokens(it) }

    /** Whether the context has room for another token. */
    val hasRoom: Boolean get() = call { Native.generatorHasRoom(it) }

    override fun free(number: Long) = Native.generatorClose(number)

    /** Appends tokens to the text. */
    fun feed(ids: IntArray) = call { Native.generatorFeed(it, ids) }

    /** Chooses the next token and appends it. */
    fun next(): Int = call { Native.generatorNext(it) }

    /** Whether this token marks the end of a text. */
    fun isStop(id: Int): Boolean = call { Native.generatorIsStop(it, id) }

    /** Truncates the text to its first [length] tokens. */
    fun rewind(length: Long) {
        if (length < 0) {
            refuse("A text cannot have $length tokens.")
        }
        call { Native.generatorRewind(it, length) }
    }

    /**
     * Cancels the running [feed] or [next], which then throws `CANCELLED`. If none runs, cancels the next one. Any thread may
     * call it.
     */
    fun cancel() = call { Native.generatorCancel(it) }

    /**
     * Appends [prompt] to the text, then generates. Passes each new part of the text to [onText], and returns all new text.
     *
     * Generation ends when the model ends the text, the context is full, [maxTokens] tokens are generated, or [onText]
     * returns false. An exception of [onText] also ends it, and [generate] throws this exception.
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
        /**
         * Creates a generator. All weights must be on [device]. [context]: the largest number of tokens of the text; 0: the
         * context length of the model. [computeDtype]: as in [Session.create].
         */
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
