"""Random files of Protobuf with random messages."""

from __future__ import annotations

from random import Random
from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
)
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass

SCALARS = {
    FieldDescriptorProto.TYPE_DOUBLE: lambda random: random.choice([0.0, -1.5, 1e300]),
    FieldDescriptorProto.TYPE_INT64: lambda random: random.randrange(-(1 << 63), 1 << 63),
    FieldDescriptorProto.TYPE_INT32: lambda random: random.randrange(-(1 << 31), 1 << 31),
    FieldDescriptorProto.TYPE_UINT32: lambda random: random.randrange(1 << 32),
    FieldDescriptorProto.TYPE_SINT32: lambda random: random.randrange(-(1 << 31), 1 << 31),
    FieldDescriptorProto.TYPE_FIXED64: lambda random: random.randrange(1 << 64),
    FieldDescriptorProto.TYPE_BOOL: lambda random: random.random() < 0.5,
    FieldDescriptorProto.TYPE_STRING: lambda random: random.choice(["", "tea", "zoë"]),
    FieldDescriptorProto.TYPE_BYTES: lambda random: random.randbytes(3),
    FieldDescriptorProto.TYPE_ENUM: lambda random: random.randrange(2),
}


class RandomProtobuf:
    """A file with messages in messages, and the classes of all."""

    def __init__(self, seed: int) -> None:
        self.random = random = Random(seed)
        package = random.choice(["", "shop", "org.shop"])
        self.file = FileDescriptorProto(name="default", package=package, syntax="proto3")
        self.file.dependency.append("google/protobuf/timestamp.proto")
        color = self.file.enum_type.add(name="Color")
        color.value.add(name="RED", number=0)
        color.value.add(name="BLUE", number=1)
        self._prefix = f".{package}." if package else "."
        self.places: list[tuple[tuple[int, ...], str]] = []
        """Index and name of each message."""
        for number in range(random.randint(1, 3)):
            self._fill(self.file.message_type.add(name=f"M{number}"), (number,), "")
        pool = DescriptorPool()
        self._add_timestamp(pool)
        pool.Add(self.file)
        names = [name for _, name in self.places]
        self.classes = [
            GetMessageClass(pool.FindMessageTypeByName((self._prefix + name)[1:])) for name in names
        ]

    @staticmethod
    def _add_timestamp(pool: Any) -> None:
        from google.protobuf import timestamp_pb2

        file = FileDescriptorProto()
        timestamp_pb2.DESCRIPTOR.CopyToProto(file)
        pool.Add(file)

    def _fill(self, message: DescriptorProto, index: tuple[int, ...], outer: str) -> None:
        random, name = self.random, outer + message.name
        self.places.append((index, name))
        if len(index) < 3:
            for number in range(random.randrange(3)):
                inner = message.nested_type.add(name=f"N{number}")
                self._fill(inner, (*index, number), f"{name}.")
        for number in range(random.randrange(1, 6)):
            label = random.choice([1, 1, 3])
            field = message.field.add(name=f"f{number}", number=number + 1, label=label)
            field.type = random.choice([*SCALARS, FieldDescriptorProto.TYPE_MESSAGE])
            if field.type == FieldDescriptorProto.TYPE_ENUM:
                field.type_name = f"{self._prefix}Color"
            elif field.type == FieldDescriptorProto.TYPE_MESSAGE:
                known = [self._prefix + each for _, each in self.places]
                field.type_name = random.choice([".google.protobuf.Timestamp", *known])

    def message(self, message_type: Any, depth: int = 3) -> Any:
        """Return a message of a class."""
        found = message_type()
        if message_type.DESCRIPTOR.full_name == "google.protobuf.Timestamp":
            found.seconds = self.random.randrange(-62_135_596_800, 253_402_300_800)
            found.nanos = self.random.randrange(1_000_000_000)
            return found
        for field in message_type.DESCRIPTOR.fields:
            is_many = field.is_repeated
            for _ in range(self.random.randrange(3) if is_many else self.random.randrange(2)):
                if field.message_type is None:
                    value = SCALARS[field.type](self.random)
                    if is_many:
                        getattr(found, field.name).append(value)
                    else:
                        setattr(found, field.name, value)
                elif depth:
                    inner = self.message(GetMessageClass(field.message_type), depth - 1)
                    if is_many:
                        getattr(found, field.name).append(inner)
                    else:
                        getattr(found, field.name).CopyFrom(inner)
        return found
