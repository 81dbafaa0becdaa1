/** Images through a node's gRPC interface, as a direct caller sends them. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { credentials, Metadata } from '@grpc/grpc-js';
import { type OutputFormat, outputFormatToProto } from '../proto/contract/formats.ts';
import { CHUNK_BYTES_MAX, MESSAGE_BYTES_MAX } from '../proto/contract/limits.ts';
import {
  Chunk,
  MatteHeader,
  type MatteRequest,
  type MatteResponse,
  MatteServiceClient,
  Priority,
  type ResultHeader,
} from '../proto/gen/matting/v1/matte_service.ts';
import type { BenchPhoto } from './photos.ts';

const WINDOW_BYTES = 4 * 1024 * 1024;

export interface NodeAnswer {
  readonly header: ResultHeader;
  readonly file: Buffer;
}

export interface NodeCaller {
  /** Images that the node admits at once. */
  imagesMax(): Promise<number>;
  /** Sends a photo for the node's own plan and settings. */
  send(photo: Omit<BenchPhoto, 'name'>, format: OutputFormat): Promise<NodeAnswer>;
  /** Does the same and resolves with the bytes of the cut-out. */
  cutOut(photo: BenchPhoto, format: OutputFormat): Promise<number>;
  close(): void;
}

export function openNodeCaller(address: string, token: string): NodeCaller {
  const client = new MatteServiceClient(address, credentials.createInsecure(), {
    'grpc.enable_retries': 0,
    'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
    'grpc-node.flow_control_window': WINDOW_BYTES,
  });
  const metadata = new Metadata();
  metadata.set('authorization', `Bearer ${token}`);
  const send: NodeCaller['send'] = async ({ file, width, height }, format) => {
    const call = client.matte(metadata);
    const request = MatteHeader.create({
      contentLength: file.length,
      sha256: createHash('sha256').update(file).digest(),
      width,
      height,
      outputFormat: outputFormatToProto(format),
      priority: Priority.PRIORITY_SYNC,
    });
    call.write({ message: { $case: 'header', value: request } });
    const chunks: Uint8Array[] = [];
    let header: ResultHeader | undefined;
    for await (const { message } of call as AsyncIterable<MatteResponse>) {
      if (message?.$case === 'admitted') {
        for (let at = 0; at < file.length; at += CHUNK_BYTES_MAX) {
          const data = file.subarray(at, at + CHUNK_BYTES_MAX);
          const chunk: MatteRequest = {
            message: { $case: 'chunk', value: Chunk.create({ data }) },
          };
          if (!call.write(chunk)) await once(call, 'drain');
        }
        call.end();
      }
      if (message?.$case === 'resultHeader') header = message.value;
      if (message?.$case === 'chunk') chunks.push(message.value.data);
    }
    if (header === undefined) throw new Error('the node sent no result header');
    return { header, file: Buffer.concat(chunks) };
  };
  const imagesMax = () =>
    new Promise<number>((resolve, reject) => {
      client.getNodeInfo({}, metadata, (error, info) => {
        if (error) reject(error);
        else resolve(info.limits?.imagesMax ?? 1);
      });
    });
  const cutOut: NodeCaller['cutOut'] = async (photo, format) =>
    (await send(photo, format)).file.length;
  return { imagesMax, send, cutOut, close: () => client.close() };
}
