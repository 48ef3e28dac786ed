"""What the sections of the settings have in common: types and base classes."""

from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

Share = Annotated[float, Field(ge=0, lt=1)]
Size = Annotated[int, Field(ge=1, lt=2**31)]
Count = Annotated[int, Field(ge=0, lt=2**31)]
Rate = Annotated[float, Field(gt=0)]
NotNegative = Annotated[float, Field(ge=0)]
# A single text need not be in a list.
Texts = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
# A single number need not be in a list.
Sizes = Annotated[list[Size], BeforeValidator(lambda given: [given] if isinstance(given, int) else given)]


class Section(BaseModel):
    """A section without unknown keys."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)


class OpenSection(Section):
    """A section that also takes the options of something that is chosen by name."""

    model_config = ConfigDict(extra="allow")

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are not settings of the section itself."""
        return dict(self.__pydantic_extra__ or {})
