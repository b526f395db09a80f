"""The targets of images that have a name: what is compared, and whose class pairs teach."""

from __future__ import annotations

from m2st_core.data.images.tasks import Shift, TwoDataSets, shift_parameters

CIFAR_SHAPE = (3, 32, 32)


class DigitsShift(Shift):
    """Digits that need no download; the classes 0 to 5 teach, and 6 to 9 are the target's."""

    name = "digits-shift"
    title = "Digit images, another mix"
    description = "8×8 images of the digits 6 to 9, in another mix or corrupted in Q; pairs of 0 to 5 teach."
    first = second = learned_from = "digits"
    shape = (1, 8, 8)
    parameters = shift_parameters(lighting=0.8)


class Cifar10Shift(Shift):
    """A sub-population shift inside CIFAR-10."""

    name = "cifar10-shift"
    title = "CIFAR-10, another mix"
    description = "Colour images of CIFAR-10, in another mix of classes or corrupted in Q; its class pairs teach."
    first = second = learned_from = "cifar10"
    shape = CIFAR_SHAPE


class Cifar100Shift(Shift):
    """A sub-population shift inside CIFAR-100."""

    name = "cifar100-shift"
    title = "CIFAR-100, another mix"
    description = "Colour images of CIFAR-100, in another mix of classes or corrupted in Q; its class pairs teach."
    first = second = learned_from = "cifar100"
    shape = CIFAR_SHAPE


class Cifar10AgainstCifar101(TwoDataSets):
    """The paper's Table 1."""

    name = "cifar10-cifar10.1"
    title = "CIFAR-10 against CIFAR-10.1"
    description = "The test images of CIFAR-10 and their replication; pairs of CIFAR-10's classes teach."
    first, second, learned_from = "cifar10", "cifar10.1", "cifar10"
    shape = CIFAR_SHAPE


class Cifar100AgainstCifar101(TwoDataSets):
    """The paper's Table 2."""

    name = "cifar100-cifar10.1"
    title = "CIFAR-100 against CIFAR-10.1"
    description = "The test images of CIFAR-100 and CIFAR-10.1; pairs of CIFAR-10's classes teach."
    first, second, learned_from = "cifar100", "cifar10.1", "cifar10"
    shape = CIFAR_SHAPE


class Cifar10AgainstCifar100(TwoDataSets):
    """Not in the paper: it needs no third data set."""

    name = "cifar10-cifar100"
    title = "CIFAR-10 against CIFAR-100"
    description = "The test images of CIFAR-10 and CIFAR-100; pairs of CIFAR-10's classes teach."
    first, second, learned_from = "cifar10", "cifar100", "cifar10"
    shape = CIFAR_SHAPE


class Cifar10AgainstCifar101ViaCifar100(Cifar10AgainstCifar101):
    """The paper's Table 7."""

    name = "cifar10-cifar10.1-via-cifar100"
    title = "CIFAR-10 against CIFAR-10.1, via CIFAR-100"
    description = "The test images of CIFAR-10 and their replication; pairs of CIFAR-100's classes teach."
    learned_from = "cifar100"


class Cifar100AgainstCifar101ViaCifar100(Cifar100AgainstCifar101):
    """The paper's Table 8."""

    name = "cifar100-cifar10.1-via-cifar100"
    title = "CIFAR-100 against CIFAR-10.1, via CIFAR-100"
    description = "The test images of CIFAR-100 and CIFAR-10.1; pairs of CIFAR-100's classes teach."
    learned_from = "cifar100"


IMAGE_TASKS = (
    DigitsShift,
    Cifar10Shift,
    Cifar100Shift,
    Cifar10AgainstCifar101,
    Cifar100AgainstCifar101,
    Cifar10AgainstCifar100,
    Cifar10AgainstCifar101ViaCifar100,
    Cifar100AgainstCifar101ViaCifar100,
)
