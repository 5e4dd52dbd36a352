"""Sets of ASCII characters as numbers: bit ``i`` is the character with code ``i``."""

from __future__ import annotations

import string
import unicodedata
from collections.abc import Iterable

EVERY = (1 << 128) - 1
NEWLINE = 1 << 10
_LONG_S, _KELVIN = 0x17F, 0x212A
"""Characters besides ASCII that are equal to an ASCII letter when case is ignored."""

SCRIPTS = frozenset(
    """
    Arabic Armenian Avestan Balinese Bamum Batak Bengali Bopomofo Brahmi Braille Buginese Buhid
    Canadian_Aboriginal Carian Cham Cherokee Common Coptic Cuneiform Cypriot Cyrillic Deseret
    Devanagari Egyptian_Hieroglyphs Ethiopic Georgian Glagolitic Gothic Greek Gujarati Gurmukhi Han
    Hangul Hanunoo Hebrew Hiragana Imperial_Aramaic Inherited Inscriptional_Pahlavi
    Inscriptional_Parthian Javanese Kaithi Kannada Katakana Kayah_Li Kharoshthi Khmer Lao Latin
    Lepcha Limbu Linear_B Lisu Lycian Lydian Malayalam Mandaic Meetei_Mayek Mongolian Myanmar
    New_Tai_Lue Nko Ogham Ol_Chiki Old_Italic Old_Persian Old_South_Arabian Old_Turkic Oriya Osmanya
    Phags_Pa Phoenician Rejang Runic Samaritan Saurashtra Shavian Sinhala Sundanese Syloti_Nagri
    Syriac Tagalog Tagbanwa Tai_Le Tai_Tham Tai_Viet Tamil Telugu Thaana Thai Tibetan Tifinagh
    Ugaritic Unknown Vai Yi
    """.split()
)
CATEGORIES = frozenset(
    """
    C Cc Cf Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk Sm So
    Z Zl Zp Zs
    """.split()
)


def mask_of(characters: Iterable[str]) -> int:
    """Return the set of the ASCII characters among some characters."""
    mask = 0
    for character in characters:
        if character.isascii():
            mask |= 1 << ord(character)
    return mask


def mask_of_range(low: int, high: int) -> int:
    """Return the set of the ASCII characters with codes from ``low`` to ``high``."""
    high = min(high, 127)
    return (1 << high + 1) - (1 << low) if low <= high else 0


UPPER, LOWER = mask_of(string.ascii_uppercase), mask_of(string.ascii_lowercase)
DIGITS, LETTERS = mask_of(string.digits), UPPER | LOWER
WORD = DIGITS | LETTERS | mask_of("_")
_SPACES = mask_of("\t\n\f\r ")
PERL_CLASSES = {"d": DIGITS, "s": _SPACES, "w": WORD}
_PUNCTUATION = mask_of(string.punctuation)
POSIX_CLASSES = {
    "alnum": DIGITS | LETTERS,
    "alpha": LETTERS,
    "ascii": EVERY,
    "blank": mask_of("\t "),
    "cntrl": mask_of_range(0, 31) | 1 << 127,
    "digit": DIGITS,
    "graph": mask_of_range(33, 126),
    "lower": LOWER,
    "print": mask_of_range(32, 126),
    "punct": _PUNCTUATION,
    "space": _SPACES | mask_of("\v"),
    "upper": UPPER,
    "word": WORD,
    "xdigit": mask_of(string.hexdigits),
}


def folded(mask: int) -> int:
    """Return the set with the letters of both cases."""
    return mask | (mask & UPPER) << 32 | (mask & LOWER) >> 32


def folded_range(low: int, high: int) -> int:
    """Return the set of a range, with all characters that are equal if case is ignored."""
    mask = folded(mask_of_range(low, high))
    if low <= _LONG_S <= high:
        mask |= mask_of("sS")
    if low <= _KELVIN <= high:
        mask |= mask_of("kK")
    return mask


def unicode_class(name: str, *, fold: bool) -> int | None:
    """Return the set of a category or script, None if there is none of this name."""
    if name == "Any":
        return EVERY
    if name == "Latin":
        return LETTERS
    if name == "Common":
        return EVERY & ~LETTERS
    if name in CATEGORIES:
        mask = mask_of(
            each for each in map(chr, range(128)) if unicodedata.category(each).startswith(name)
        )
        # RE2J's tables of equal characters are not complete for lower case letters.
        extra = {"Lu": LOWER, "Ll": mask_of("KS")}.get(name, 0) if fold else 0
        return mask | extra
    return 0 if name in SCRIPTS else None
