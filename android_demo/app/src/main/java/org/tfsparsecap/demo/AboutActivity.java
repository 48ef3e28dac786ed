package org.tfsparsecap.demo;

import android.app.Activity;
import android.content.pm.PackageManager;
import android.os.Bundle;
import android.text.format.Formatter;
import android.util.Log;
import android.view.LayoutInflater;
import android.view.View;
import android.view.ViewGroup;
import android.widget.TextView;
import android.widget.Toolbar;
import java.text.NumberFormat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Locale;
import java.util.Map;

/** What the model is, what it was trained on, what it is bad at, and under which licences all of it comes. */
public final class AboutActivity extends Activity {
  private static final String TAG = "AboutActivity";
  // What else the description counts, such as pictures, is no score.
  private static final List<String> SCORES =
      Arrays.asList(
          "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE");

  private Worker worker;

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.about);
    Edges.keepFree(findViewById(R.id.root));
    Bars.withWayBack(this, (Toolbar) findViewById(R.id.bar));
    section(R.string.about_privacy_title, getString(R.string.about_privacy));
    TextView model = section(R.string.about_model_title, "");
    section(R.string.about_bad_title, getString(R.string.about_bad));
    section(R.string.about_app_title, getString(R.string.about_app, version()));
    readModel(model);
  }

  @Override
  protected void onDestroy() {
    super.onDestroy();
    worker.finish(() -> {});
  }

  private TextView section(int title, String text) {
    ViewGroup content = findViewById(R.id.about_content);
    View section = LayoutInflater.from(this).inflate(R.layout.about_section, content, false);
    ((TextView) section.findViewById(R.id.section_title)).setText(title);
    TextView view = section.findViewById(R.id.section_text);
    view.setText(text);
    content.addView(section);
    return view;
  }

  private void readModel(TextView into) {
    worker = new Worker("about");
    ModelStore models = CaptionApplication.of(this).models();
    ModelChoice chosen = models.chosen();
    if (chosen == null) {
      into.setText(R.string.problem_model_missing);
      return;
    }
    worker.run(
        () -> {
          try (Engine.Model model = models.open(chosen)) {
            return model.facts();
          }
        },
        facts -> into.setText(describe(chosen, models, facts)),
        thrown -> into.setText(Sentence.of(thrown).text(this)));
  }

  private String describe(ModelChoice choice, ModelStore models, ModelFacts facts) {
    List<String> lines = new ArrayList<>();
    String title =
        choice == ModelChoice.OWN
            ? getString(R.string.model_own_named, models.ownName())
            : getString(choice.title());
    lines.add(
        getString(
            R.string.about_model_kind,
            title,
            Formatter.formatShortFileSize(this, facts.bytes()),
            facts.words(),
            facts.imageSize()));
    if (!facts.trainedOn().isEmpty()) {
      lines.add(getString(R.string.about_trained_on, facts.trainedOn()));
    }
    if (facts.sparsity().isPresent()) {
      lines.add(
          getString(
              R.string.about_sparsity, Words.percent(this, facts.sparsity().getAsDouble())));
    }
    String scores = scores(facts);
    if (!scores.isEmpty()) {
      lines.add(getString(R.string.about_scores, scores));
    }
    if (!facts.name().isEmpty()) {
      lines.add(getString(R.string.about_model_name, facts.name()));
    }
    return String.join("\n", lines);
  }

  private String scores(ModelFacts facts) {
    Locale locale = getResources().getConfiguration().getLocales().get(0);
    NumberFormat format = NumberFormat.getInstance(locale);
    format.setMaximumFractionDigits(3);
    List<String> scores = new ArrayList<>();
    for (Map.Entry<String, Double> score : facts.scores().entrySet()) {
      if (SCORES.contains(score.getKey())) {
        scores.add(
            getString(R.string.about_score, score.getKey(), format.format(score.getValue())));
      }
    }
    return String.join(", ", scores);
  }

  private String version() {
    try {
      return getPackageManager().getPackageInfo(getPackageName(), 0).versionName;
    } catch (PackageManager.NameNotFoundException impossible) {
      Log.e(TAG, "not installed", impossible);
      return "";
    }
  }
}
