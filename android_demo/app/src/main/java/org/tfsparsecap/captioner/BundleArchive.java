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
 * The ZIP archive that rides behind a model's graph, read where it lies: java.util.zip.ZipFile wants a file of
 * its own, and an asset or a document is none. It takes and refuses what Python's zipfile does, so that a
 * bundle works here exactly where it works there.
 */
final class BundleArchive {
  private static final int END = 0x06054b50;
  private static final int END_SIZE = 22;
  private static final int LONGEST_COMMENT = 1 << 16;
  private static final int ENTRY = 0x02014b50;
  private static final int ENTRY_SIZE = 46;
  private static final int LOCAL = 0x04034b50;
  private static final int LOCAL_SIZE = 30;
  private static final int MOST_ENTRIES = 1000;
  private static final int NEWEST_VERSION = 63;
  private static final int ENCRYPTED = 0x01 | 0x20 | 0x40;
  private static final int NAME_IN_UTF_8 = 0x800;
  private static final int STORED = 0;
  private static final int DEFLATED = 8;

  private final ByteBuffer file;
  private final Map<String, Entry> entries = new HashMap<>();

  private BundleArchive(ByteBuffer file) {
    this.file = file;
  }

  /** What the directory says of a file; sizes as unsigned numbers. */
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
   * The archive at the end of a file, or null where there is none.
   *
   * @throws BundleException there is one, but damaged.
   */
  static BundleArchive at(ByteBuffer whole) throws BundleException {
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

  /** Whether it holds a file of this name. */
  boolean contains(String name) {
    return entries.containsKey(name);
  }

  /**
   * The content of a file.
   *
   * @param largest bytes that it may have: what an archive says of its sizes need not be true.
   * @throws BundleException it is absent, damaged, or larger.
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
      throw damaged("the check sum of " + name + " is wrong");
    }
    return content;
  }

  /** Where the end record lies, or -1; a comment may follow it. */
  private static int end(ByteBuffer file) {
    int last = file.limit() - END_SIZE;
    if (last >= 0 && file.getInt(last) == END && file.getShort(last + 20) == 0) {
      return last;
    }
    int first = Math.max(0, last - LONGEST_COMMENT);
    for (int at = file.limit() - 4; at >= first; at--) {
      if (file.getInt(at) == END) {
        return at <= last ? at : -1;
      }
    }
    return -1;
  }

  private void readDirectory(int end) throws BundleException {
    long size = unsigned(file.getInt(end + 12));
    long offset = unsigned(file.getInt(end + 16));
    // Offsets may count from the start of the archive or of the file: the end record lies behind the directory.
    long before = end - size - offset;
    if (end - size < 0) {
      throw damaged("the archive's directory begins before the file");
    }
    int at = (int) (end - size);
    int count = 0;
    while (at < end) {
      if (end - at < ENTRY_SIZE || file.getInt(at) != ENTRY) {
        throw damaged("the archive's directory is broken");
      }
      if (++count > MOST_ENTRIES) {
        throw damaged("more than " + MOST_ENTRIES + " files");
      }
      Entry entry = entry(at, before);
      int name = at + ENTRY_SIZE;
      int extra = name + unsigned(file.getShort(at + 28));
      int comment = extra + unsigned(file.getShort(at + 30));
      entry.name = name(name, Math.min(extra, end), entry.flags);
      checkExtra(Math.min(extra, end), Math.min(comment, end));
      int zero = entry.name.indexOf('\0');
      entries.put(zero < 0 ? entry.name : entry.name.substring(0, zero), entry);
      at = comment + unsigned(file.getShort(at + 32));
    }
  }

  private Entry entry(int at, long before) throws BundleException {
    int version = file.get(at + 6) & 0xff;
    if (version > NEWEST_VERSION) {
      throw damaged("archive version " + version);
    }
    Entry entry = new Entry();
    entry.flags = unsigned(file.getShort(at + 8));
    entry.method = unsigned(file.getShort(at + 10));
    entry.crc = file.getInt(at + 16);
    entry.compressedSize = unsigned(file.getInt(at + 20));
    entry.size = unsigned(file.getInt(at + 24));
    entry.start = unsigned(file.getInt(at + 42)) + before;
    return entry;
  }

  /** Nothing is read from extra fields; broken ones are a sign of damage. */
  private void checkExtra(int from, int to) throws BundleException {
    for (int at = from; to - at >= 4; at += 4 + unsigned(file.getShort(at + 2))) {
      if (unsigned(file.getShort(at + 2)) + 4 > to - at) {
        throw damaged("an extra field in the archive's directory is broken");
      }
    }
  }

  /** What follows an entry's local header, up to the end of the file. */
  private ByteBuffer data(Entry entry) throws BundleException {
    if (entry.start < 0 || entry.start > file.limit() - LOCAL_SIZE) {
      throw damaged(entry.name + " begins outside of the file");
    }
    int at = (int) entry.start;
    if (file.getInt(at) != LOCAL) {
      throw damaged(entry.name + " has no header");
    }
    if ((entry.flags & ENCRYPTED) != 0) {
      throw damaged(entry.name + " is encrypted");
    }
    int name = at + LOCAL_SIZE;
    int extra = Math.min(file.limit(), name + unsigned(file.getShort(at + 26)));
    if (!name(name, extra, unsigned(file.getShort(at + 6))).equals(entry.name)) {
      throw damaged(entry.name + " has another name in its header");
    }
    ByteBuffer data = file.duplicate();
    data.position(Math.min(file.limit(), extra + unsigned(file.getShort(at + 28))));
    return data;
  }

  private static byte[] stored(Entry entry, ByteBuffer data) throws BundleException {
    long size = Math.min(entry.size, entry.compressedSize);
    if (size > data.remaining()) {
      throw damaged(entry.name + " reaches beyond the file");
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
            break; // The check sum says whether anything is missing.
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
    // All names that are looked for are ASCII, which every old code page has in the same place.
    Charset charset = (flags & NAME_IN_UTF_8) == 0 ? StandardCharsets.ISO_8859_1 : StandardCharsets.UTF_8;
    try {
      return charset.newDecoder().decode(ByteBuffer.wrap(bytes)).toString();
    } catch (CharacterCodingException error) {
      throw new BundleException(Reason.DAMAGED, "a name in the archive is no UTF-8", error);
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
