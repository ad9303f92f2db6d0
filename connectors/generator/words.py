"""The words that rows are made of: things and places, and text that is awkward to write down."""

from headwater.connectors.generator.chance import combine_words, texts

_KINDS = (
    "amber", "arctic", "brass", "bright", "coastal", "copper", "crimson", "distant", "early",
    "gentle", "golden", "granite", "hidden", "ivory", "little", "lunar", "maple", "misty",
    "northern", "olive", "pale", "quiet", "rapid", "royal", "rustic", "silent", "silver",
    "southern", "steady", "velvet", "violet", "winter",
)  # fmt: skip
_THINGS = (
    "anchor", "barrel", "basket", "beacon", "bridge", "button", "candle", "canvas", "castle",
    "compass", "cradle", "feather", "fiddle", "garden", "hammer", "harbor", "kettle", "ladder",
    "lantern", "mirror", "needle", "orchard", "paddle", "pillow", "quarry", "ribbon", "saddle",
    "shelter", "spindle", "teapot", "window", "workshop",
)  # fmt: skip

NAMES = combine_words(_KINDS, _THINGS)
CITIES = texts(
    "Amsterdam", "Bogotá", "Čakovec", "Dakar", "Edinburgh", "Fukuoka", "Göteborg", "Hanoi",
    "İzmir", "Jaén", "Kraków", "Lyon", "Malmö", "Nairobi", "Øygarden", "Porto", "Québec", "Riga",
    "São Paulo", "Tórshavn", "Ulm", "Valparaíso", "Wien", "Xi'an", "Yerevan", "Zürich",
)  # fmt: skip
NOTES = texts(
    None, None, None, "gift", "leave at the door", 'please write "thank you"', "back\\slash",
    "two\nlines", "a tab\there", "as a présent 🎁", "", "NULL", "'; --",
)  # fmt: skip
STATUSES = texts("new", "paid", "shipped")
