package android.os;

/** What the Kotlin package uses of the class of Android with this name. */
public final class ParcelFileDescriptor {
  private final int fd;

  public ParcelFileDescriptor(int fd) {
    this.fd = fd;
  }

  public int getFd() {
    return fd;
  }
}
