"""Stored records to Arrow, many at a time: numpy and pyarrow, no Spark and no files.

    fixed        structures of fixed size at many places of a buffer
    boundaries   where records begin in bytes that hold them end to end
    heads        the fixed fields of many records, and where their contents are
    spans        many stretches of one buffer as one Arrow array
    hosts        addresses and offset message ids
    properties   the pairs of many records at once
    bodies       CRC and decompression
    records      `RecordDecoder`, which puts them together to a batch of the chosen columns

Everything that happens per record happens in numpy or Arrow. What is right is defined by the
readers of `rmq.model.record` and `rmq.model.properties`; they also say what is wrong with a record.
"""
