package org.tfsparsecap.captioner;

import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.tfsparsecap.captioner.BundleException.Reason;

/** Decodes token ids to captions. */
final class CaptionDecoder {
  private final List<String> vocabulary;
  private final TokenJoin join;
  private final int endId;
  private final Set<Integer> skippedIds;
  private final Confidence confidence;

  CaptionDecoder(CaptionerBundle bundle) {
    this(bundle.vocabulary(), bundle.description());
  }

  CaptionDecoder(List<String> vocabulary, BundleDescription description) {
    this.vocabulary = vocabulary;
    join = description.join();
    endId = description.endId();
    skippedIds = description.skippedIds();
    confidence = description.confidence();
  }

  /**
   * @param tokenIds a row of the graph's output.
   * @param logProbability score of the row.
   * @param probabilities of the objects in the image.
   * @throws BundleException a token id is not in the vocabulary.
   */
  Caption caption(int[] tokenIds, float logProbability, float[] probabilities) throws BundleException {
    int length = 0;
    while (length < tokenIds.length && tokenIds[length] != endId) {
      length++;
    }
    List<String> said = new ArrayList<>();
    for (int i = 0; i < length; i++) {
      int token = tokenIds[i];
      if (token < 0 || token >= vocabulary.size()) {
        throw new BundleException(
            Reason.DAMAGED, "the graph returned token " + token + ", the vocabulary has " + vocabulary.size());
      }
      if (!skippedIds.contains(token)) {
        said.add(vocabulary.get(token));
      }
    }
    // The end token counts; a caption of maximum length has none.
    int tokens = Math.max(1, Math.min(length + 1, tokenIds.length));
    float probability = confidence.of(logProbability, tokens, probabilities);
    return new Caption(join.join(said), logProbability, probability);
  }
}
