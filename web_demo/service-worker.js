/** Keeps the files of the page, so that it opens without network after the first visit. */

// build.sh writes both.
const VERSION = "";
const FILES = [];

const CACHE = `tfsparsecap-${VERSION}`;

self.addEventListener("install", (event) => {
  event.waitUntil(caches.open(CACHE).then((cache) => cache.addAll(FILES)));
});

// A new version waits until no page uses the old one, and then removes its files.
self.addEventListener("activate", (event) => {
  const isOld = (name) => name.startsWith("tfsparsecap-") && name !== CACHE;
  const removed = caches
    .keys()
    .then((names) => Promise.all(names.filter(isOld).map((name) => caches.delete(name))));
  event.waitUntil(removed.then(() => self.clients.claim()));
});

self.addEventListener("fetch", (event) => {
  const found = caches.open(CACHE).then((cache) => cache.match(event.request, { ignoreSearch: true }));
  event.respondWith(found.then((response) => response ?? fetch(event.request)));
});
