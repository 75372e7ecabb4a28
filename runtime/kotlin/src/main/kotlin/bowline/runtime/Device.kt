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

/** Options of [Device.open]. null selects the default of the library; see DeviceOptions in bowline/device.h. */
class DeviceOptions(
    /** Number of CPU threads, including the thread that calls. Default: one per core. */
    val threads: Int? = null,
    /** Nice value of the CPU threads, 0 to 19. A higher value is a lower priority. */
    val nice: Int? = null,
    /** CPU: each thread computes at most this share of the time, 0.05 to 1. Less load saves energy and heat. */
    val maxLoad: Double? = null,
    /** Limit of the memory of the device, in bytes. A call that would exceed it throws `OVER_BUDGET`. */
    val memoryBudget: Long? = null,
    /** GPU: folder for compiled pipelines and tuning files, for example `context.cacheDir.path`. */
    val cacheFolder: String? = null,
    /** Receives messages, in any thread. Its exceptions are ignored. */
    val log: ((LogLevel, String) -> Unit)? = null
)

/** A device that runs models: "cpu", or a GPU such as "vulkan:0". Any thread may use it. */
class Device private constructor(number: Long, private val log: Long) : Handle("device", number) {
    /** The members of DeviceInfo (bowline/device.h) as a JSON object. */
    val info: String get() = call { textOf(Native.deviceInfo(it)) }

    override fun free(number: Long) {
        Native.deviceClose(number)
        Callbacks.remove(log)
    }

    companion object {
        /** All devices, as a JSON array of objects like [info]. Member `unusable` says why a device cannot be opened. */
        fun list(): String = textOf(Native.deviceList())

        /**
         * Opens a device. [name]: "cpu", "vulkan:0", or "best" for a GPU if there is a usable one, else the CPU. Throws
         * `UNSUPPORTED` if the device cannot be used, and `BAD_ARGUMENT` if there is no such device.
         */
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
