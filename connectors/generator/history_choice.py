"""Which history the settings ask for, and its name."""

from typing import TYPE_CHECKING

from headwater.connectors.generator.settings import GeneratorSettings

if TYPE_CHECKING:
    from headwater.connectors.generator.history import GeneratedHistory


def history_of(settings: GeneratorSettings) -> "GeneratedHistory":
    from headwater.connectors.generator.shop import Shop
    from headwater.connectors.generator.wide import Wide

    if settings.mode == "shop":
        return Shop(seed=settings.seed, size=settings.size)
    return Wide(
        seed=settings.seed,
        size=settings.size,
        transaction_rows=settings.transaction_rows,
        updates=settings.updates,
        deletes=settings.deletes,
        batch_rows=settings.batch_rows,
    )


def name_of(settings: GeneratorSettings) -> str:
    """Everything that the rows of a history depend on."""
    parts = [settings.mode, f"seed={settings.seed}", f"size={settings.size}"]
    if settings.mode == "wide":
        parts += [f"transaction_rows={settings.transaction_rows}"]
        parts += [f"updates={settings.updates}", f"deletes={settings.deletes}"]
    return " ".join(parts)
