package org.tfsparsecap.demo;

import static org.junit.Assert.assertEquals;
import static org.junit.Assert.assertFalse;
import static org.junit.Assert.assertNotEquals;

import java.io.File;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.TreeSet;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import javax.xml.parsers.DocumentBuilderFactory;
import javax.xml.parsers.ParserConfigurationException;
import org.junit.Test;
import org.w3c.dom.Element;
import org.w3c.dom.NodeList;
import org.xml.sax.SAXException;

/** Every string is translated, with the same placeholders. */
public final class TranslationsTest {
  private static final Pattern PLACEHOLDER = Pattern.compile("%[0-9]+\\$[sd]");

  @Test
  public void germanIsComplete() throws Exception {
    Map<String, String> english = strings("values");
    Map<String, String> german = strings("values-de");
    assertEquals(english.keySet(), german.keySet());
    for (String name : english.keySet()) {
      assertEquals(name, placeholders(english.get(name)), placeholders(german.get(name)));
      assertFalse(name, german.get(name).trim().isEmpty());
    }
    assertNotEquals(english.get("welcome"), german.get("welcome"));
  }

  @Test
  public void everyProblemEndsWithAPeriod() throws Exception {
    for (String folder : new String[] {"values", "values-de"}) {
      Map<String, String> strings = strings(folder);
      for (Problem problem : Problem.values()) {
        String name = "problem_" + problem.name().toLowerCase(java.util.Locale.ROOT);
        String text = strings.get(name);
        assertEquals(name + ": " + text, '.', text.charAt(text.length() - 1));
      }
    }
  }

  private static TreeSet<String> placeholders(String text) {
    TreeSet<String> placeholders = new TreeSet<>();
    Matcher matcher = PLACEHOLDER.matcher(text);
    while (matcher.find()) {
      placeholders.add(matcher.group());
    }
    return placeholders;
  }

  private static Map<String, String> strings(String folder)
      throws IOException, ParserConfigurationException, SAXException {
    File file = new File("src/main/res/" + folder + "/strings.xml");
    NodeList all =
        DocumentBuilderFactory.newInstance()
            .newDocumentBuilder()
            .parse(file)
            .getElementsByTagName("string");
    Map<String, String> strings = new TreeMap<>();
    for (int i = 0; i < all.getLength(); i++) {
      Element string = (Element) all.item(i);
      strings.put(string.getAttribute("name"), string.getTextContent());
    }
    return strings;
  }
}
