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

/** Describes the model in use, its training data and weaknesses, and the licences. */
public final class AboutActivity extends Activity {
  private static final String TAG = "AboutActivity";
  // Other numbers in the description, such as the number of images, are not scores.
  private static final List<String> SCORES =
      Arrays.asList(
          "BLEU-1", "BLEU-2", "BLEU-3", "BLEU-4", "METEOR", "ROUGE-L", "CIDEr", "SPICE");

  private Worker worker;

  @Override
  protected void onCreate(Bundle saved) {
    super.onCreate(saved);
    setContentView(R.layout.about);
    WindowSetup.padForSystemBars(findViewById(R.id.root));
    WindowSetup.showUpButton(this, (Toolbar) findViewById(R.id.toolbar));
    section(R.string.about_privacy_title, getString(R.string.about_privacy));
    TextView model = section(R.string.about_model_title, "");
    section(R.string.about_weaknesses_title, getString(R.string.about_weaknesses));
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
            return model.info();
          }
        },
        info -> into.setText(describe(chosen, models, info)),
        thrown -> into.setText(Message.of(thrown).text(this)));
  }

  private String describe(ModelChoice choice, ModelStore models, ModelInfo info) {
    List<String> lines = new ArrayList<>();
    String title =
        choice == ModelChoice.USER
            ? getString(R.string.model_user_named, models.userModelName())
            : getString(choice.title());
    lines.add(
        getString(
            R.string.about_model_kind,
            title,
            Formatter.formatShortFileSize(this, info.bytes()),
            info.words(),
            info.imageSize()));
    if (!info.trainedOn().isEmpty()) {
      lines.add(getString(R.string.about_trained_on, info.trainedOn()));
    }
    if (info.sparsity().isPresent()) {
      lines.add(
          getString(
              R.string.about_sparsity, CaptionFormat.percent(this, info.sparsity().getAsDouble())));
    }
    String scores = scores(info);
    if (!scores.isEmpty()) {
      lines.add(getString(R.string.about_scores, scores));
    }
    if (!info.name().isEmpty()) {
      lines.add(getString(R.string.about_model_name, info.name()));
    }
    return String.join("\n", lines);
  }

  private String scores(ModelInfo info) {
    Locale locale = getResources().getConfiguration().getLocales().get(0);
    NumberFormat format = NumberFormat.getInstance(locale);
    format.setMaximumFractionDigits(3);
    List<String> scores = new ArrayList<>();
    for (Map.Entry<String, Double> score : info.scores().entrySet()) {
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
