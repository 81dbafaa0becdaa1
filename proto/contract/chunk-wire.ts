/** The method Matte copies a chunk to write it, once. Generated code copies it five times. */
import { BinaryReader, BinaryWriter } from '@bufbuild/protobuf/wire';
import {
  type Chunk,
  type MatteRequest,
  type MatteResponse,
  MatteServiceService,
} from '../gen/matting/v1/matte_service.ts';

/** Tags of `chunk` in a MatteRequest and a MatteResponse, and of `data` in a Chunk. */
const REQUEST_TAG = 18;
const RESPONSE_TAG = 34;
const DATA_TAG = 10;
/** Generated code reads shorter messages, in which a tag or length may be missing. */
const READ_BYTES_MIN = 1024;

function encodeChunk(tag: number, { data }: Chunk): Buffer {
  const inner = new BinaryWriter().uint32(DATA_TAG).uint32(data.length).finish();
  const outer = new BinaryWriter()
    .uint32(tag)
    .uint32(inner.length + data.length)
    .finish();
  return Buffer.concat([outer, inner, data]);
}

/** Its data is a view of the message. Undefined: the message is not exactly one chunk. */
function chunkIn(tag: number, message: Buffer): Chunk | undefined {
  if (message.length < READ_BYTES_MIN || message[0] !== tag) return undefined;
  const reader = new BinaryReader(message);
  reader.uint32();
  const chunkBytes = reader.uint32();
  if (reader.pos + chunkBytes !== reader.len || reader.uint32() !== DATA_TAG) return undefined;
  const data = reader.bytes() as Buffer;
  return reader.pos === reader.len ? { data } : undefined;
}

function writing<M extends MatteRequest | MatteResponse>(
  tag: number,
  write: (message: M) => Buffer,
) {
  return (of: M) =>
    of.message?.$case === 'chunk' ? encodeChunk(tag, of.message.value) : write(of);
}

function reading<M extends MatteRequest | MatteResponse>(
  tag: number,
  read: (message: Buffer) => M,
) {
  return (bytes: Buffer) => {
    const value = chunkIn(tag, bytes);
    return value === undefined ? read(bytes) : ({ message: { $case: 'chunk', value } } as M);
  };
}

const { matte } = MatteServiceService;

export const MATTE = {
  ...matte,
  requestSerialize: writing(REQUEST_TAG, matte.requestSerialize),
  requestDeserialize: reading(REQUEST_TAG, matte.requestDeserialize),
  responseSerialize: writing(RESPONSE_TAG, matte.responseSerialize),
  responseDeserialize: reading(RESPONSE_TAG, matte.responseDeserialize),
};
