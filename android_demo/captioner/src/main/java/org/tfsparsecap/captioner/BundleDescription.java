package org.tfsparsecap.captioner;

import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashSet;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalDouble;
import java.util.OptionalInt;
import java.util.Set;
import org.json.JSONArray;
import org.json.JSONObject;
import org.tfsparsecap.captioner.BundleException.Reason;

/** A typed view of the description in a bundle, {@code captioner.json}. Immutable. */
public final class BundleDescription {
  /** The newest version of the bundle format that this class reads. */
  public static final int FORMAT_VERSION = 1;

  private static final int MAX_IMAGE_SIZE = 4096;

  private final String text;
  private final JSONObject json;
  private final TokenJoin join;
  private final int endId;
  private final Set<Integer> skippedIds;
  private final int imageSize;
  private final Confidence confidence;
  private final List<String> objects;

  /**
   * @param text the content of {@code captioner.json}.
   * @throws BundleException it is damaged, has a newer format version, or describes a captioner
   *     that does not take images.
   */
  BundleDescription(String text) throws BundleException {
    this.text = text;
    json = JsonParser.parse(text);
    checkVersion();
    if (json.optString("input").equals("features")) {
      throw new BundleException(Reason.TAKES_FEATURES, "the bundle takes region features, not images");
    }
    JSONObject special = json.optJSONObject("special_ids");
    OptionalInt end = special == null ? OptionalInt.empty() : integer(special, "end");
    if (!end.isPresent()) {
      throw new BundleException(Reason.DAMAGED, "the description has no id of the end token");
    }
    endId = end.getAsInt();
    skippedIds = Collections.unmodifiableSet(unsaid(special));
    join = TokenJoin.named(json.opt("join"));
    confidence = new Confidence(json);
    objects = Collections.unmodifiableList(names(json));
    imageSize = integer(json, "image_size").orElse(0);
    if (imageSize < 1 || imageSize > MAX_IMAGE_SIZE) {
      throw new BundleException(
          Reason.DAMAGED, "the image size is " + json.opt("image_size") + ", not 1 to " + MAX_IMAGE_SIZE);
    }
  }

  private void checkVersion() throws BundleException {
    Object version = json.opt("format_version");
    if (!(version instanceof Integer) && !(version instanceof Long)) {
      throw new BundleException(Reason.DAMAGED, "the description has no format version");
    }
    if (((Number) version).longValue() > FORMAT_VERSION) {
      throw new BundleException(
          Reason.NEWER_FORMAT, "format version " + version + ", supported up to " + FORMAT_VERSION);
    }
  }

  /** Compares a bundle with the digests in this description; arguments as of {@link Digests#check}. */
  void checkDigests(ByteBuffer file, int graphSize, byte[] vocabulary) throws BundleException {
    Digests.check(json, file, graphSize, vocabulary);
  }

  private static List<String> names(JSONObject json) throws BundleException {
    List<String> names = new ArrayList<>();
    JSONArray found = json.optJSONArray("objects");
    if (found == null && !json.isNull("objects")) {
      throw new BundleException(Reason.DAMAGED, "the objects are not a list");
    }
    for (int i = 0; found != null && i < found.length(); i++) {
      Object name = found.opt(i);
      if (!(name instanceof String) || ((String) name).isEmpty()) {
        throw new BundleException(Reason.DAMAGED, "an object has no name");
      }
      names.add((String) name);
    }
    return names;
  }

  private Set<Integer> unsaid(JSONObject special) {
    Set<Integer> ids = new HashSet<>();
    for (Iterator<String> names = special.keys(); names.hasNext(); ) {
      integer(special, names.next()).ifPresent(ids::add);
    }
    // Missing in older files.
    integer(json, "unknown_id").ifPresent(ids::add);
    return ids;
  }

  /** Name of the training run, such as {@code soft_attention-smp-0.9-s1}. */
  public Optional<String> name() {
    return string("run");
  }

  /** Class of the captioner, such as {@code SoftAttention}. */
  public Optional<String> model() {
    return string("model");
  }

  /** The training data, such as {@code flickr8k: flickr8k}. */
  public Optional<String> trainedOn() {
    return string("trained_on");
  }

  /** Fraction of the weights that are zero, 0 to 1. */
  public OptionalDouble sparsity() {
    Object value = json.opt("sparsity");
    return value instanceof Number
        ? OptionalDouble.of(((Number) value).doubleValue())
        : OptionalDouble.empty();
  }

  /** Storage format of the weights, such as {@code int8}. */
  public Optional<String> exportFormat() {
    return string("export_format");
  }

  /**
   * Test scores of the trained model, before its weights were rounded for the file, by name, such
   * as {@code CIDEr}, or counts, such as {@code images}, in the order of the file. Unmodifiable;
   * empty if the file has none.
   */
  public Map<String, Double> scores() {
    Map<String, Double> numbers = new LinkedHashMap<>();
    JSONObject scores = json.optJSONObject("scores");
    if (scores != null) {
      for (Iterator<String> names = scores.keys(); names.hasNext(); ) {
        String name = names.next();
        Object value = scores.opt(name);
        if (value instanceof Number) {
          numbers.put(name, ((Number) value).doubleValue());
        }
      }
    }
    return Collections.unmodifiableMap(numbers);
  }

  /** Side length of the square input images, in pixels. */
  public int imageSize() {
    return imageSize;
  }

  /** Number of captions that the beam search returns. */
  public OptionalInt beam() {
    return integer(json, "beam");
  }

  /** Maximum number of words in a caption. */
  public OptionalInt maxLength() {
    return integer(json, "max_length");
  }

  /** Id of the token that ends a caption. */
  public int endId() {
    return endId;
  }

  /** The complete content of {@code captioner.json}. */
  public String json() {
    return text;
  }

  /** How tokens are joined to text. */
  TokenJoin join() {
    return join;
  }

  /** How sure the captioner is of its captions. */
  Confidence confidence() {
    return confidence;
  }

  /** Names of the objects whose probabilities the graph returns; unmodifiable, empty if it returns none. */
  List<String> objects() {
    return objects;
  }

  /** Ids of tokens that do not appear in captions: special tokens and the unknown token. */
  Set<Integer> skippedIds() {
    return skippedIds;
  }

  private Optional<String> string(String name) {
    Object value = json.opt(name);
    return value instanceof String ? Optional.of((String) value) : Optional.empty();
  }

  private static OptionalInt integer(JSONObject object, String name) {
    Object value = object.opt(name);
    return value instanceof Integer ? OptionalInt.of((Integer) value) : OptionalInt.empty();
  }
}
