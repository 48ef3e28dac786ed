"""Objects that captions name, compared with the labels of the images: object recall and hallucination.

Rohrbach et al., *Object Hallucination in Image Captioning*, EMNLP 2018, arXiv:1809.02156 (CHAIR).
"""

import functools
import itertools
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from tfsparsecap.captioning.metrics.tokenize import light_tokenize

# The 80 categories of MS-COCO, and other words for them in the singular. Where people use one of the common
# words, 60 % or more of the images have the label. For this reason "desk" (5 %), "coffee table" (35 %),
# "glass" and "computer" (a laptop, a screen or a keyboard) are absent. Indented lines continue another one.
_TABLE = """
person: people, man, woman, boy, girl, child, kid, toddler, infant, baby, lady, guy, gentleman, dude, adult,
    teenager, teen, youth, someone, somebody, anyone, individual, crowd, audience, spectator, onlooker,
    couple, family, mother, father, mom, mum, dad, daughter, son, brother, sister, grandmother, grandfather,
    friend, bride, groom, husband, wife, male, female, rider, cyclist, bicyclist, biker, motorcyclist,
    bike rider, jockey, cowboy, skier, snowboarder, snow boarder, skateboarder, skate boarder, skater,
    surfer, boarder, swimmer, windsurfer, wind surfer, kite surfer, player, team, batter, baseball pitcher,
    catcher, umpire, baseman, athlete, referee, coach, trainer, instructor, pedestrian, passenger, commuter,
    traveler, traveller, tourist, driver, conductor, worker, employee, chef, baker, waiter, waitress,
    bartender, customer, shopper, vendor, soldier, officer, policeman, police man, cop, fireman, firefighter,
    fire fighter, businessman, business man, businesswoman, business woman, student, teacher, performer,
    musician, clown, farmer, fisherman, hiker, climber
bicycle: bike, tricycle, mountain bike
car: automobile, van, minivan, mini van, sedan, suv, jeep, taxi, taxi cab, convertible, limousine, limo
motorcycle: motor cycle, motorbike, motor bike, scooter, moped, vespa, dirt bike, dirtbike
airplane: plane, aeroplane, air plane, aircraft, jet, jetliner, jet liner, airliner, biplane, seaplane
bus: busses, double decker, minibus, coach bus, trolley bus
train: locomotive, tram, steam engine, train car, subway car
truck: pickup, pick up truck, lorry, firetruck, fire engine, semi, tractor trailer
boat: ship, sailboat, canoe, kayak, yacht, ferry, gondola, rowboat, motorboat, speedboat, tugboat, barge,
    dinghy, raft, catamaran, houseboat
traffic light: traffic signal, stop light, stoplight, red light, green light
fire hydrant: hydrant
stop sign: stopsign
parking meter: meter
bench: pew
bird: seagull, gull, duck, duckling, goose, swan, pigeon, dove, owl, parrot, parakeet, cockatoo, eagle, hawk,
    falcon, crow, raven, sparrow, finch, robin, cardinal, blue jay, hummingbird, woodpecker, pelican,
    flamingo, heron, egret, stork, peacock, chick, rooster, hen, ostrich, penguin, vulture
cat: kitten, kitty, tabby, calico
dog: puppy, pup, poodle, bulldog, pit bull, bull dog, terrier, labrador, retriever, dachshund, shepherd dog,
    german shepherd, sheepdog, sheep dog, collie, pug, beagle, corgi, husky, hound, chihuahua, dalmatian
horse: pony, colt, foal, stallion, mare, horseback
sheep: lamb, ram, ewe, goat
cow: calf, bull, cattle, steer, ox, oxen, heifer, longhorn, buffalo
elephant:
bear: polar bear, grizzly, panda
zebra:
giraffe:
backpack: back pack, knapsack, rucksack
umbrella: parasol
handbag: hand bag, purse, tote bag, shoulder bag
tie: necktie, neck tie, bow tie, bowtie
suitcase: suit case, luggage, baggage, briefcase
frisbee: frisbie, frizbee, disc, flying disk
skis: skiis, on skies, on ski, pair of ski
snowboard: snow board
sports ball: ball, tennis ball, basketball, football, volleyball
kite:
baseball bat: bat
baseball glove: mitt, a glove, his glove
skateboard: skate board, longboard
surfboard: surf board, boogie board, body board, paddle board, paddleboard
tennis racket: racket, racquet, tennis racquet, raquet
bottle:
wine glass: wineglass, glass of wine, glasses of wine, glass of red wine, glass of white wine,
    champagne glass
cup: mug, teacup
fork:
knife:
spoon:
bowl:
banana:
apple:
sandwich: burger, hamburger, cheeseburger, panini
orange: oranges, tangerine, clementine, orange slice, orange half, orange wedge, orange peel, an orange on,
    an orange in, an orange is, an orange sitting, an orange next, an orange .
broccoli: brocolli, broccolli, brocoli
carrot:
hot dog: hotdog, corn dog, chili dog, cheese dog
pizza:
donut: doughnut
cake: cupcake, cup cake, cheesecake, carrot cake
chair: armchair, arm chair, stool, recliner
couch: sofa, loveseat, love seat, futon
potted plant: houseplant, house plant
bed: mattress
dining table: table
toilet: urinal, commode, toilet bowl
tv: television, flat screen, flatscreen, big screen, monitor, computer screen
laptop: lap top, laptop computer, laptop keyboard, laptop screen, macbook, mac book
mouse: computer mouse
remote: remote control, wii remote, wii controller, wiimote, game controller, tv remote, television remote
keyboard: computer keyboard
cell phone: cellphone, mobile phone, phone, smartphone, iphone
microwave: microwave oven
oven: stove, stovetop, stove top
toaster:
sink:
refrigerator: fridge, freezer
book:
clock: grandfather clock
vase:
scissors: scissor
teddy bear: teddy, teddybear, stuffed bear, stuffed animal
hair drier: hair dryer, hairdryer, blow dryer, blowdryer
toothbrush: tooth brush
"""
# Phrases with such a word that mean something else, or nothing that people label.
_OTHER = """
couple of, family of, family room, family kitchen, adult and baby, adult and young, mother and baby,
its mother, its baby, its babies, 's mother, child 's, children 's, someone 's, someones, men 's,
drivers seat, drivers side, passenger seat, passenger side, mp3 player, record player, music player,
dvd player, cd player, kite surfing, kite boarding, bike rack, bike lane, bike path, bicycle rack,
bicycle lane, bicycle tire, motorcycle helmet, car seat, car window, cable car, street car, freight car,
passenger car, rail car, box car, jet ski, bus stop, bus station, bus lane, train track, train station,
train platform, train yard, train depot, train ride, semi circle, boat dock, boat house, bird house,
bird feeder, bird bath, bird cage, bird seed, hello kitty, sea horse, cow pattern, cow print, zebra crossing,
zebra print, luggage rack, basketball hoop, basketball court, basketball game, basketball player,
football game, football field, football player, fork lift, cricket bat, toilet paper, toilet brush,
apple computer, apple laptop, apple keyboard, apple cider, apple pie, apple logo, apple iphone, apple mouse,
pan cake, crab cake, rice cake, pizza hut, pizza box, chair lift, wheel chair, foot stool, bed of, flat bed,
truck bed, flower bed, coffee table, end table, side table, pool table, table tennis, table cloth, table top,
musical keyboard, toaster oven, oven mitt, oven rack, telephone pole, remote area, remote location,
remote road, remote roadway, remote controlled, mickey mouse, book store, book shelf, book case, book bag,
cook book
"""
# Before the name of an animal, a vehicle or another thing these are not people: "a baby elephant".
_ATTRIBUTES = ("baby", "adult", "mother", "male", "female", "passenger", "commuter")
_PLURALS = {
    **{"human": "humans", "man": "men", "person": "people", "child": "children", "wife": "wives"},
    **{"knife": "knives", "mouse": "mice", "calf": "calves", "goose": "geese", "half": "halves"},
    **{"foot": "feet", "tooth": "teeth"},
}


def _table(text: str) -> dict[str, list[str]]:
    entries = (entry.split(":") for entry in re.sub(r"\n +", " ", text).strip().split("\n"))
    return {name: list(filter(None, words.strip().split(", "))) for name, words in entries}


#: The 80 object categories of MS-COCO, and other words for them in captions.
SYNONYMS = _table(_TABLE)


class Labelled(NamedTuple):
    """A caption, the labels of its image, and the image's reference captions."""

    caption: str
    labels: Collection[str]
    references: Sequence[str] = ()


def object_scores(captions: Iterable[Labelled], names: Iterable[str]) -> dict[str, float]:
    """Whether captions name the objects that are in their images, and only those.

    Args:
        captions: of images whose labels are known.
        names: of all objects that are labelled in the data set; other objects in captions do not count.

    Returns:
        - `object_images`: number of images with known labels;
        - `object_recall`: share of the captions of images with a label that name a labelled object;
        - `object_hallucination`: share of the captions that name an object that is not labelled;
        - `object_hallucination_mentions`: share of the named objects that are not labelled;
        - `CHAIR_s` and `CHAIR_i`: the last two, if the objects that a reference caption names also count as
          labelled, as published.

        Shares of nothing are absent, and all of them without captions.

    Examples:
        >>> caption = Labelled("a man rides a horse", ["horse"], ["A person is on a horse."])
        >>> scores = object_scores([caption], SYNONYMS)
        >>> scores["object_recall"], scores["object_hallucination"], scores["CHAIR_s"]
        (1.0, 1.0, 0.0)
    """
    phrases = _phrases(_all_folded(names))
    recalled: list[bool] = []
    wrong: list[list[bool]] = []
    wrong_united: list[list[bool]] = []
    for caption, labels, references in captions:
        named, there = _named(caption, phrases), set(_all_folded(labels))
        if there:
            recalled.append(not there.isdisjoint(named))
        wrong.append([name not in there for name in named])
        there.update(name for text in references for name in _named(text, phrases))
        wrong_united.append([name not in there for name in named])
    if not wrong:
        return {}
    shares = {
        "object_recall": recalled,
        "object_hallucination": list(map(any, wrong)),
        "object_hallucination_mentions": list(itertools.chain(*wrong)),
        "CHAIR_s": list(map(any, wrong_united)),
        "CHAIR_i": list(itertools.chain(*wrong_united)),
    }
    scores = {name: sum(values) / len(values) for name, values in shares.items() if values}
    return {"object_images": len(wrong), **scores}


def named_objects(caption: str, names: Collection[str] = SYNONYMS.keys()) -> list[str]:
    """The objects that a caption names, in its order; an object that it names twice is there twice.

    Compound words come first: "hot dog" is no dog, "toilet paper" no toilet.

    Args:
        caption: in English.
        names: of objects. For those of MS-COCO's 80 categories, synonyms count, for all others only the name
            and its plural.

    Examples:
        >>> named_objects("Two men on bikes eat hot dogs near unicorns.", ["person", "dog", "unicorn"])
        ['person', 'unicorn']
    """
    return _named(caption, _phrases_of(tuple(names)))


def objects_of_words(words: Sequence[str], names: Sequence[str]) -> tuple[list[int], list[bool]]:
    """What the words of a vocabulary say about objects, for a search that adds one word after the other.

    Args:
        words: the words.
        names: of objects, as of `named_objects`.

    Returns:
        For each word the index in `names` of the object that it names by itself, or -1; and whether it may
        give the next word another meaning, as "hot" does to "dog".

    Examples:
        >>> objects_of_words(["dogs", "hot", "run"], ["cat", "dog"])
        ([1, -1, -1], [False, True, False])
    """
    phrases = _phrases_of(tuple(names))
    index = {_folded(name): number for number, name in enumerate(names)}
    before = {
        phrase[-2]
        for phrase, name in phrases.items()
        if len(phrase) > 1 and phrases.get(phrase[-1:], name) != name
    }
    return [index.get(phrases.get((word,), ""), -1) for word in words], [word in before for word in words]


@functools.lru_cache(maxsize=8)
def _phrases_of(names: tuple[str, ...]) -> dict[tuple[str, ...], str]:
    return _phrases(_all_folded(names))


def _named(caption: str, phrases: Mapping[tuple[str, ...], str]) -> list[str]:
    longest = max(map(len, phrases))
    words = [*_folded(caption).split(), "."]
    objects, position = [], 0
    while position < len(words):
        candidates = (tuple(words[position : position + size]) for size in range(longest, 0, -1))
        phrase = next((candidate for candidate in candidates if candidate in phrases), None)
        if phrase is None:
            position += 1
            continue
        if phrases[phrase]:
            objects.append(phrases[phrase])
        position += len(phrase)
    return objects


def _folded(text: str) -> str:
    return light_tokenize(text.replace("-", " ")).replace("-", " ")


def _all_folded(names: Iterable[str]) -> frozenset[str]:
    return frozenset(filter(None, map(_folded, names)))


def _phrases(names: frozenset[str]) -> dict[tuple[str, ...], str]:
    """The words of a phrase -> the object of `names` that it means, or "" for something else."""
    meanings: dict[str, str] = {}
    for category, synonyms in SYNONYMS.items():
        words = _with_plurals([category, *synonyms])
        if category != "person":
            words += [f"{attribute} {word}" for attribute in _ATTRIBUTES for word in words]
        meanings |= dict.fromkeys(words, category if category in names else "")
    others = _with_plurals(" ".join(_OTHER.split()).split(", "))
    meanings |= dict.fromkeys(["orange", *others], "")  # most often a colour
    for name in names - SYNONYMS.keys():
        meanings |= dict.fromkeys(_with_plurals([name]), name)
    return {tuple(phrase.split()): name for phrase, name in meanings.items()}


def _with_plurals(phrases: Iterable[str]) -> list[str]:
    return [form for phrase in phrases for form in (phrase, *_plurals(phrase))]


def _plurals(noun: str) -> list[str]:
    """Possible plurals of a noun, of a compound those of its last word."""
    for singular, plural in _PLURALS.items():
        if noun.endswith(singular):
            return [noun.removesuffix(singular) + plural]
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return [f"{noun}es"]
    if noun.endswith("y") and noun[-2:-1] not in tuple("aeiou"):
        return [f"{noun[:-1]}ies"]
    if noun.endswith("o"):
        return [f"{noun}s", f"{noun}es"]
    stem = noun.removesuffix("e")
    if stem.endswith("f") and not stem.endswith("ff"):
        return [f"{noun}s", f"{stem[:-1]}ves"]
    return [f"{noun}s"]
