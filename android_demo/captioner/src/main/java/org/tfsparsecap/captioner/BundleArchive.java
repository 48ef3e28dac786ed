package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.CharacterCodingException;
import java.nio.charset.Charset;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.zip.CRC32;
import java.util.zip.DataFormatException;
import java.util.zip.Inflater;
import org.tfsparsecap.captioner.BundleException.Reason;

/**
 * Reads the ZIP archive that is appended to a model's graph. {@code java.util.zip.ZipFile} cannot
 * do this, because it needs a file of its own, not an asset or a document. The class accepts and
 * rejects the same archives as Python's {@code zipfile}, so that a bundle works here exactly if it
 * works there.
 */
final class BundleArchive {
  private static final int END_RECORD = 0x06054b50;
  private static final int END_RECORD_SIZE = 22;
  private static final int MAX_COMMENT = 1 << 16;
  private static final int DIRECTORY_ENTRY = 0x02014b50;
  private static final int DIRECTORY_ENTRY_SIZE = 46;
  private static final int LOCAL_HEADER = 0x04034b50;
  private static final int LOCAL_HEADER_SIZE = 30;
  private static final int MAX_ENTRIES = 1000;
  private static final int MAX_VERSION = 63;
  private static final int ENCRYPTED = 0x01 | 0x20 | 0x40;
  private static final int UTF_8_NAME = 0x800;
  private static final int STORED = 0;
  private static final int DEFLATED = 8;

  private final ByteBuffer file;
  private final Map<String, Entry> entries = new HashMap<>();

  private BundleArchive(ByteBuffer file) {
    this.file = file;
  }

  /** An entry of the central directory; sizes are unsigned. */
  private static final class Entry {
    String name;
    int flags;
    int method;
    int crc;
    long compressedSize;
    long size;
    long start;
  }

  /**
   * Finds the archive at the end of a file.
   *
   * @return null if there is none.
   * @throws BundleException the archive is damaged.
   */
  static BundleArchive find(ByteBuffer whole) throws BundleException {
    ByteBuffer file = whole.duplicate().order(ByteOrder.LITTLE_ENDIAN);
    file.clear();
    int end = end(file);
    if (end < 0) {
      return null;
    }
    BundleArchive archive = new BundleArchive(file);
    archive.readDirectory(end);
    return archive;
  }

  /** Returns the position of the first file in the archive, where the graph ends. */
  int start() {
    long start = file.limit();
    for (Entry entry : entries.values()) {
      start = Math.min(start, entry.start);
    }
    return (int) Math.max(0, start);
  }

  /** Whether the archive contains a file of this name. */
  boolean contains(String name) {
    return entries.containsKey(name);
  }

  /**
   * Returns the content of a file in the archive.
   *
   * @param largest maximum size in bytes; the sizes in the archive cannot be trusted.
   * @throws BundleException the file is missing, damaged, or too large.
   */
  byte[] read(String name, int largest) throws BundleException {
    Entry entry = entries.get(name);
    if (entry == null) {
      throw new BundleException(Reason.NO_DESCRIPTION, "no " + name + " in the file");
    }
    if (entry.method != STORED && entry.method != DEFLATED) {
      throw damaged(name + " is compressed by method " + entry.method + ", not stored or deflated");
    }
    if (entry.size > largest) {
      throw damaged(name + " is larger than " + (largest >> 20) + " MB");
    }
    ByteBuffer data = data(entry);
    byte[] content = entry.method == STORED ? stored(entry, data) : inflated(entry, data);
    CRC32 crc = new CRC32();
    crc.update(content, 0, content.length);
    if ((int) crc.getValue() != entry.crc) {
      throw damaged("the checksum of " + name + " is wrong");
    }
    return content;
  }

  /** Returns the position of the end record, which a comment may follow, or -1. */
  private static int end(ByteBuffer file) {
    int last = file.limit() - END_RECORD_SIZE;
    if (last >= 0 && file.getInt(last) == END_RECORD && file.getShort(last + 20) == 0) {
      return last;
    }
    int first = Math.max(0, last - MAX_COMMENT);
    for (int pos = file.limit() - 4; pos >= first; pos--) {
      if (file.getInt(pos) == END_RECORD) {
        return pos <= last ? pos : -1;
      }
    }
    return -1;
  }

  private void readDirectory(int end) throws BundleException {
    long size = unsigned(file.getInt(end + 12));
    long offset = unsigned(file.getInt(end + 16));
    // Offsets count from the start of the archive or of the whole file; the end record follows the
    // directory.
    long before = end - size - offset;
    if (end - size < 0) {
      throw damaged("the archive's directory begins before the file");
    }
    int pos = (int) (end - size);
    int count = 0;
    while (pos < end) {
      if (end - pos < DIRECTORY_ENTRY_SIZE || file.getInt(pos) != DIRECTORY_ENTRY) {
        throw damaged("the archive's directory is broken");
      }
      if (++count > MAX_ENTRIES) {
        throw damaged("more than " + MAX_ENTRIES + " files");
      }
      Entry entry = entry(pos, before);
      int name = pos + DIRECTORY_ENTRY_SIZE;
      int extra = name + unsigned(file.getShort(pos + 28));
      int comment = extra + unsigned(file.getShort(pos + 30));
      entry.name = name(name, Math.min(extra, end), entry.flags);
      checkExtra(Math.min(extra, end), Math.min(comment, end));
      int zero = entry.name.indexOf('\0');
      entries.put(zero < 0 ? entry.name : entry.name.substring(0, zero), entry);
      pos = comment + unsigned(file.getShort(pos + 32));
    }
  }

  private Entry entry(int pos, long before) throws BundleException {
    int version = file.get(pos + 6) & 0xff;
    if (version > MAX_VERSION) {
      throw damaged("unsupported archive version " + version);
    }
    Entry entry = new Entry();
    entry.flags = unsigned(file.getShort(pos + 8));
    entry.method = unsigned(file.getShort(pos + 10));
    entry.crc = file.getInt(pos + 16);
    entry.compressedSize = unsigned(file.getInt(pos + 20));
    entry.size = unsigned(file.getInt(pos + 24));
    entry.start = unsigned(file.getInt(pos + 42)) + before;
    return entry;
  }

  /** Extra fields are not used, but malformed ones indicate damage. */
  private void checkExtra(int from, int to) throws BundleException {
    for (int pos = from; to - pos >= 4; pos += 4 + unsigned(file.getShort(pos + 2))) {
      if (unsigned(file.getShort(pos + 2)) + 4 > to - pos) {
        throw damaged("an extra field in the archive's directory is broken");
      }
    }
  }

  /** Returns everything after an entry's local header, up to the end of the file. */
  private ByteBuffer data(Entry entry) throws BundleException {
    if (entry.start < 0 || entry.start > file.limit() - LOCAL_HEADER_SIZE) {
      throw damaged(entry.name + " begins outside of the file");
    }
    int pos = (int) entry.start;
    if (file.getInt(pos) != LOCAL_HEADER) {
      throw damaged(entry.name + " has no header");
    }
    if ((entry.flags & ENCRYPTED) != 0) {
      throw damaged(entry.name + " is encrypted");
    }
    int name = pos + LOCAL_HEADER_SIZE;
    int extra = Math.min(file.limit(), name + unsigned(file.getShort(pos + 26)));
    if (!name(name, extra, unsigned(file.getShort(pos + 6))).equals(entry.name)) {
      throw damaged(entry.name + " has another name in its header");
    }
    ByteBuffer data = file.duplicate();
    data.position(Math.min(file.limit(), extra + unsigned(file.getShort(pos + 28))));
    return data;
  }

  private static byte[] stored(Entry entry, ByteBuffer data) throws BundleException {
    long size = Math.min(entry.size, entry.compressedSize);
    if (size > data.remaining()) {
      throw damaged(entry.name + " extends beyond the end of the file");
    }
    byte[] content = new byte[(int) size];
    data.get(content);
    return content;
  }

  private static byte[] inflated(Entry entry, ByteBuffer data) throws BundleException {
    if (entry.compressedSize < data.remaining()) {
      data.limit(data.position() + (int) entry.compressedSize);
    }
    byte[] input = new byte[4096];
    byte[] content = new byte[(int) Math.min(entry.size, 1 << 16)];
    int length = 0;
    Inflater inflater = new Inflater(true);
    try {
      while (length < entry.size && !inflater.finished()) {
        if (inflater.needsInput()) {
          if (!data.hasRemaining()) {
            break; // The checksum shows whether data is missing.
          }
          int count = Math.min(input.length, data.remaining());
          data.get(input, 0, count);
          inflater.setInput(input, 0, count);
        }
        if (length == content.length) {
          content = Arrays.copyOf(content, (int) Math.min(entry.size, 2L * length));
        }
        length += inflater.inflate(content, length, content.length - length);
        if (inflater.needsDictionary()) {
          throw damaged(entry.name + " cannot be inflated without a dictionary");
        }
      }
    } catch (DataFormatException error) {
      throw new BundleException(Reason.DAMAGED, entry.name + " cannot be inflated", error);
    } finally {
      inflater.end();
    }
    return Arrays.copyOf(content, length);
  }

  private String name(int from, int to, int flags) throws BundleException {
    byte[] bytes = new byte[to - from];
    ByteBuffer view = file.duplicate();
    view.position(from);
    view.get(bytes);
    // All names that are looked up are ASCII, which is the same in every legacy code page.
    Charset charset = (flags & UTF_8_NAME) == 0 ? StandardCharsets.ISO_8859_1 : StandardCharsets.UTF_8;
    try {
      return charset.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
    } catch (CharacterCodingException error) {
      throw new BundleException(Reason.DAMAGED, "a name in the archive is not valid UTF-8", error);
    }
  }

  private static int unsigned(short value) {
    return value & 0xffff;
  }

  private static long unsigned(int value) {
    return value & 0xffffffffL;
  }

  private static BundleException damaged(String what) {
    return new BundleException(Reason.DAMAGED, what);
  }
}
