/** A Matte call answered by a test's script. */
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import type { ServerDuplexStream } from '@grpc/grpc-js';
import { ContractError, type ErrorCode } from '@matting/proto/contract/errors.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';
import { CHUNK_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type MatteHeader,
  type MatteRequest,
  type MatteResponse,
  type ResultHeader,
  Stage,
  type StageTimings,
} from '@matting/proto/gen/matting/v1/matte_service.ts';

const PREFIX = Buffer.from('cut out: ');

export function cutOutOf(input: Uint8Array): Buffer {
  return Buffer.concat([PREFIX, input]);
}

export type Script = (exchange: Exchange) => Promise<void>;

/** Repeats the last one. */
export function inTurn(...scripts: [Script, ...Script[]]): Script {
  let [current] = scripts;
  const coming = scripts.values();
  return exchange => {
    current = coming.next().value ?? current;
    return current(exchange);
  };
}

/** As a node should. */
export const cutOutAfter =
  (opened: Promise<unknown>): Script =>
  async exchange => {
    await opened;
    await exchange.cutOut();
  };

export type Duplex = ServerDuplexStream<MatteRequest, MatteResponse>;
export class Exchange {
  readonly header: MatteHeader;
  readonly #call: Duplex;
  readonly #messages: AsyncIterator<MatteRequest>;
  readonly #onAdmit: () => void;
  readonly cancelled: Promise<void>;

  constructor(
    call: Duplex,
    header: MatteHeader,
    messages: AsyncIterator<MatteRequest>,
    onAdmit: () => void,
  ) {
    this.#call = call;
    this.header = header;
    this.#messages = messages;
    this.#onAdmit = onAdmit;
    this.cancelled = new Promise(resolve => call.once('cancelled', resolve));
  }

  write(message: MatteResponse['message']): void {
    this.#call.write({ message });
  }

  admit(): void {
    this.#onAdmit();
    this.write({ $case: 'admitted', value: { queuePosition: 0, estimatedWaitMs: 0 } });
  }

  async receive(): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for (;;) {
      const next = await this.#messages.next();
      if (next.done) return Buffer.concat(chunks);
      if (next.value.message?.$case === 'chunk') chunks.push(next.value.message.value.data);
    }
  }

  /** Repeats the request's format and finishing by default, like a node. */
  announce(result: Uint8Array, changes: Partial<ResultHeader> = {}): void {
    const { outputFormat: format, finishing, hints } = this.header;
    this.write({
      $case: 'resultHeader',
      value: {
        format,
        contentType: 'image/png',
        sizeBytes: result.length,
        width: this.header.width || 1,
        height: this.header.height || 1,
        resultKind: this.header.resultKind,
        plan: 'scripted',
        modelRuns: [],
        modelsMissing: [],
        runsMissing: [],
        finishing,
        inputWidth: 0,
        inputHeight: 0,
        subject: undefined,
        hints: hints !== undefined,
        matteBytes: 0,
        ...changes,
      },
    });
  }

  send(result: Uint8Array): void {
    for (let start = 0; start < result.length; start += CHUNK_BYTES_MAX) {
      const data = Buffer.from(result.subarray(start, start + CHUNK_BYTES_MAX));
      this.write({ $case: 'chunk', value: { data } });
    }
  }

  async sendPaced(data: Uint8Array): Promise<void> {
    const message: MatteResponse = {
      message: { $case: 'chunk', value: { data: Buffer.from(data) } },
    };
    if (!this.#call.write(message)) await once(this.#call, 'drain');
  }

  done(
    sha256: Buffer,
    thumbnail: Buffer = Buffer.alloc(0),
    changes: Partial<StageTimings> = {},
  ): void {
    const stage = {
      receiveMs: 1,
      workerWaitMs: 0,
      decodeMs: 2,
      engineWaitMs: 0,
      inferMs: 3,
      secondLookMs: 0,
      extraRunMs: 0,
      cropRunMs: this.header.givenMatte && this.header.selectableSha256 ? 7 : 0,
      refineMs: 1,
      finishMs: 0,
      encodeMs: 1,
      sendMs: 1,
      ...changes,
    };
    this.write({ $case: 'done', value: { sha256, timings: stage, thumbnail } });
  }

  end(): void {
    this.#call.end();
  }

  fail(code: ErrorCode, options: { retryable?: boolean } = {}): void {
    this.#call.emit('error', toStatus(new ContractError(code, `told to: ${code}`, options)));
  }

  async cutOut(changes: Partial<ResultHeader> = {}, thumbnail?: Buffer): Promise<void> {
    this.admit();
    this.answer(await this.receive(), changes, thumbnail);
  }

  answerMatte(input: Uint8Array, matte: Buffer): void {
    const result = cutOutOf(input);
    this.announce(result, { matteBytes: matte.length });
    this.write({ $case: 'matteChunk', value: { data: matte } });
    this.send(result);
    this.done(createHash('sha256').update(result).digest());
    this.end();
  }

  answer(input: Uint8Array, changes: Partial<ResultHeader> = {}, thumbnail?: Buffer): void {
    this.write({ $case: 'progress', value: { stage: Stage.STAGE_INFERRING } });
    const result = cutOutOf(input);
    this.announce(result, changes);
    this.send(result);
    this.done(createHash('sha256').update(result).digest(), thumbnail);
    this.end();
  }
}
