package bowline.runtime

/** The version of the library. */
val version: String get() = textOf(Native.version())

enum class LogLevel {
    INFO,
    WARNING;

    internal companion object {
        fun of(number: Int): LogLevel = values().getOrElse(number) { WARNING }
    }
}

/** Options of a device. null: the default of the library (DeviceOptions in bowline/device.h). */
class DeviceOptions(
    /** Number of CPU threads. */
    val threads: Int? = null,
    /** Lowers the priority of the CPU threads, 0 to 19. */
    val nice: Int? = null,
    /** Largest share of the time in which a thread computes, above 0 and at most 1. Saves energy and heat. */
    val maxLoad: Double? = null,
    /** Limit of device memory in bytes. */
    val memoryBudget: Long? = null,
    /** Folder for compiled pipelines and tuning files, for example `context.cacheDir.path`. */
    val cacheFolder: String? = null,
    /** Gets messages, in any thread. What it throws is ignored. */
    val log: ((LogLevel, String) -> Unit)? = null
)

/** A device that computes: "cpu", or a GPU such as "vulkan:0". Any thread may use it. */
class Device private constructor(number: Long, private val log: Long) : Handle("device", number) {
    /** DeviceInfo as JSON. */
    val info: String get() = call { textOf(Native.deviceInfo(it)) }

    override fun free(number: Long) {
        Native.deviceClose(number)
        Callbacks.remove(log)
    }

    companion object {
        /** The devices of this machine, as JSON: a list of DeviceInfo. */
        fun list(): String = textOf(Native.deviceList())

        fun open(name: String, options: DeviceOptions = DeviceOptions()): Device {
            val log = options.log?.let { Callbacks.add(it) } ?: 0
            try {
                val number = Native.deviceOpen(
                    utf8(name), options.threads ?: -1, options.nice ?: -1, options.maxLoad ?: -1.0,
                    options.memoryBudget ?: -1, utf8OrNull(options.cacheFolder), log
                )
                return Device(number, log)
            } catch (failure: BowlineException) {
                Callbacks.remove(log)
                throw failure
            }
        }
    }
}
