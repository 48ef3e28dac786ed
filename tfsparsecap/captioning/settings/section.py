"""What the sections of the settings have in common: types and base classes."""

from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from tfsparsecap.captioning.settings.yaml_values import value_of

#: For types that are not texts: the values of numbers and booleans in YAML.
AsValue = BeforeValidator(value_of)
Share = Annotated[float, Field(ge=0, lt=1), AsValue]
Size = Annotated[int, Field(ge=1, lt=2**31), AsValue]
Count = Annotated[int, Field(ge=0, lt=2**31), AsValue]
Rate = Annotated[float, Field(gt=0), AsValue]
NotNegative = Annotated[float, Field(ge=0), AsValue]
# A single text need not be in a list.
Texts = Annotated[list[str], BeforeValidator(lambda given: [given] if isinstance(given, str) else given)]
# A single number need not be in a list.
Sizes = Annotated[
    list[Size], BeforeValidator(lambda given: [given] if isinstance(value_of(given), int) else given)
]
#: The values of keys that are chosen by name, such as options.
Options = dict[str, Annotated[Any, AsValue]]


class Section(BaseModel):
    """A section without unknown keys."""

    model_config = ConfigDict(extra="forbid", validate_default=True, allow_inf_nan=False)


class OpenSection(Section):
    """A section that also takes the options of something that is chosen by name.

    Attributes:
        texts: names of options that are texts.
    """

    model_config = ConfigDict(extra="allow")
    texts: ClassVar[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _values(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        convert = {**dict.fromkeys(cls.model_fields, lambda value: value), **dict.fromkeys(cls.texts, _text)}
        return {key: convert.get(key, value_of)(value) for key, value in given.items()}

    @property
    def options(self) -> dict[str, Any]:
        """The keys that are not settings of the section itself."""
        return dict(self.__pydantic_extra__ or {})


def _text(value: Any) -> Any:
    return str(value) if isinstance(value, str) else value_of(value)
