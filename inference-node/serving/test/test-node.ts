/** A node's gRPC side over fake pools, on loopback, with callers. */
import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import {
  type ClientDuplexStream,
  credentials,
  Metadata,
  ServerCredentials,
  type ServerOptions,
  type ServiceError,
} from '@grpc/grpc-js';
import type { GuardCause } from '@matting/program/ports/grpc-guard.ts';
import type { GuardBounds } from '@matting/program/ports/guard-bounds.ts';
import type { Tracing } from '@matting/program/tracing/active-span.ts';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { fromServiceError } from '@matting/proto/contract/grpc-status.ts';
import {
  MatteHeader,
  type MatteRequest,
  type MatteResponse,
  MatteServiceClient,
  type ResultHeader,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { soon, until } from '@matting/test-support/waiting.ts';
import { type Logger, pino } from 'pino';
import { Admission } from '../admission.ts';
import type { ProviderChoice } from '../engine/choice/execution-provider.ts';
import { Callers, type CallerToken, tokenMetadata } from '../grpc/callers.ts';
import { EXCHANGE_BOUNDS, type ExchangeBounds } from '../grpc/matte-exchange.ts';
import { openNodeServer } from '../grpc/server.ts';
import type { CommercialUseGate } from '../models/model-settings.ts';
import type { PreparedModel } from '../models/prepared-model.ts';
import { selectableOf } from '../models/selectable.ts';
import type { PicturePool } from '../picture/pool/picture-pool.ts';
import { PIPELINE_POSITIONS, Pipeline, type PlanRun } from '../pipeline.ts';
import { composeService, startServing } from '../service.ts';
import {
  FakeEnginePool,
  FakePicturePool,
  type FakeStage,
  StageGates,
  TINY_MODEL,
} from './fake-pools.ts';

export interface TestNodeOptions {
  readonly token?: string;
  readonly limits?: Partial<ConstructorParameters<typeof Admission>[0]>;
  readonly bounds?: Partial<ExchangeBounds>;
  readonly capabilities?: Partial<FakePicturePool['capabilities']>;
  readonly guardBounds?: Partial<GuardBounds>;
  readonly matteSilenceMaxMs?: number;
  readonly connectionAgeMaxMs?: number;
  readonly serverOptions?: ServerOptions;
  readonly callers?: Omit<ConstructorParameters<typeof Callers>[0], 'tokens' | 'isOpen'> & {
    readonly callerTokens?: readonly CallerToken[];
  };
  readonly credentials?: ServerCredentials;
  readonly model?: Partial<PreparedModel>;
  readonly log?: Logger;
  /** MATTING_COMMERCIAL_USE. */
  readonly commercialUse?: CommercialUseGate;
  readonly opinion?: PlanRun;
  readonly bootId?: string;
  readonly tracing?: Tracing;
  /** Leaves the node without work. */
  readonly starting?: boolean;
}

export type TestNode = Awaited<ReturnType<typeof openTestNode>>;

const SILENT = pino({ level: 'silent' });

const PROVIDER: ProviderChoice = {
  requested: 'auto',
  selected: 'cpu',
  fallbacks: [{ provider: 'cuda', reason: 'no device' }],
};

export async function openTestNode(options: TestNodeOptions = {}) {
  const gates = new StageGates();
  const engines = new FakeEnginePool(gates);
  const pictures = new FakePicturePool(gates, options.capabilities);
  const shell = await openShell(
    { model: { ...TINY_MODEL, ...options.model }, engines, role: 'subject' },
    pictures,
    options,
  );
  return { gates, engines, pictures, ...shell };
}

function callersOf(options: TestNodeOptions): Callers {
  const { callerTokens: direct = [], ...rules } = options.callers ?? {};
  const fleet = options.token === undefined ? [] : [options.token];
  return new Callers({
    tokens: { fleet, direct },
    isOpen: fleet.length + direct.length === 0,
    ...rules,
  });
}

export async function openShell(
  run: PlanRun,
  pictures: PicturePool,
  options: TestNodeOptions = {},
) {
  const callers = callersOf(options);
  const service = composeService({
    identity: { nodeId: 'node-1', bootId: options.bootId ?? 'boot-1', version: '0.0.0' },
    callers,
    log: options.log ?? SILENT,
    bounds: { ...EXCHANGE_BOUNDS, ...options.bounds },
    ...(options.tracing && { tracing: () => options.tracing }),
  });
  const { status, metrics, matte, watchers, started } = service;
  const admission = new Admission({
    imagesMax: 4,
    megapixelsMax: 200,
    megapixelsAloneMax: 100,
    ...options.limits,
  });
  const pipeline = new Pipeline(pictures);
  const runs = options.opinion === undefined ? [run] : [run, options.opinion];
  const plan = { name: run.model.model, runs };
  const selectable = selectableOf({ name: plan.name, models: runs }, 'tests');
  if (!options.starting) {
    const { commercialUse } = options;
    const plans = { plan, selectable, engineBytes: 1e9, commercialUse };
    const pools = { pictures, admission, pipeline, provider: PROVIDER, device: undefined };
    startServing(service, { ...plans, ...pools });
  }
  const ended: GuardCause[] = [];
  const { connectionAgeMaxMs, guardBounds, matteSilenceMaxMs, serverOptions } = options;
  const server = await openNodeServer({
    host: '127.0.0.1',
    port: 0,
    callers,
    credentials: options.credentials ?? ServerCredentials.createInsecure(),
    ...{ connectionAgeMaxMs, guardBounds, matteSilenceMaxMs, serverOptions },
    status,
    matte,
    watchers,
    info: () => started.value?.info,
    onEnded: cause => ended.push(cause),
  });
  const address = `127.0.0.1:${server.port}`;
  const client = new MatteServiceClient(address, credentials.createInsecure());
  const close = async () => {
    client.close();
    matte.abortAll(new ContractError('NODE_UNAVAILABLE', 'the test is over'));
    watchers.close();
    await soon(() => `the server to close. ${heldBy({ admission, pipeline })}`, server.close());
  };
  const { connections } = server;
  const seen = { callers, status, metrics, matte, watchers };
  const inside = { ...seen, admission, pipeline, plan };
  return { ...inside, address, client, close, connections, ended };
}

type Holding = Pick<TestNode, 'admission' | 'pipeline'>;

/** Names a leak: permits, and positions in the pipeline. */
function heldBy({ admission, pipeline }: Holding): string {
  const { images, megapixels } = admission.snapshot();
  const positions = PIPELINE_POSITIONS.filter(position => pipeline.imagesAt(position) > 0);
  const at = positions.map(position => `${pipeline.imagesAt(position)} ${position}`).join(', ');
  return `images still admitted: ${images} (${megapixels} megapixels); in the pipeline: ${at || 0}`;
}

/** @throws Error after 10 s, with what is held */
export async function untilNothingAdmitted(node: Holding): Promise<void> {
  const isFree = () => node.admission.snapshot().images === 0;
  await until(() => `the permits to come back. ${heldBy(node)}`, isFree);
}

/**
 * No call is open.
 * @throws Error after 10 s, with what is held
 */
export async function untilIdle(node: Holding & Pick<TestNode, 'matte'>): Promise<void> {
  await soon(() => `the calls to end. ${heldBy(node)}`, node.matte.untilIdle());
}

export async function heldIn(
  node: TestNode,
  stage: FakeStage,
  fields: Partial<MatteHeader> = {},
): Promise<MatteCaller> {
  node.gates.hold(stage);
  const caller = await new MatteCaller(node).sendFile('12345', fields);
  await node.gates.reached(stage);
  return caller;
}

export function header(fields: Partial<MatteHeader> = {}): MatteRequest {
  const value = MatteHeader.create({ contentLength: 5, width: 8, height: 6, ...fields });
  return { message: { $case: 'header', value } };
}

export function chunk(data: Uint8Array | string): MatteRequest {
  return { message: { $case: 'chunk', value: { data: Buffer.from(data as string) } } };
}

export function sha256(data: Uint8Array | string): Buffer {
  return createHash('sha256').update(data).digest();
}

export class MatteCaller {
  readonly call: ClientDuplexStream<MatteRequest, MatteResponse>;
  readonly messages: MatteResponse[] = [];
  readonly #ended: Promise<ServiceError | undefined>;
  #arrived = Promise.withResolvers<void>();

  constructor(
    node: Pick<TestNode, 'client'>,
    options: { token?: string | undefined; deadlineMs?: number } = {},
  ) {
    const { deadlineMs } = options;
    const limits = deadlineMs === undefined ? {} : { deadline: Date.now() + deadlineMs };
    const metadata = options.token ? tokenMetadata(options.token) : new Metadata();
    this.call = node.client.matte(metadata, limits);
    this.call.on('data', (message: MatteResponse) => {
      this.messages.push(message);
      this.#arrived.resolve();
      this.#arrived = Promise.withResolvers();
    });
    this.#ended = new Promise(resolve => {
      this.call.once('error', resolve);
      this.call.once('end', () => resolve(undefined));
    });
    // A failed call emits its status here too.
    void once(this.call, 'status').catch(() => undefined);
  }

  /**
   * Undefined: OK.
   * @throws Error after 10 s
   */
  get ended(): Promise<ServiceError | undefined> {
    const kinds = () => `the call to end, which has had: ${this.kinds().join(', ') || 'nothing'}`;
    return soon(kinds, this.#ended);
  }

  send(...requests: MatteRequest[]): this {
    for (const request of requests) this.call.write(request);
    return this;
  }

  async announce(fields: Partial<MatteHeader> = {}): Promise<this> {
    this.send(header(fields));
    await this.until('admitted');
    return this;
  }

  /** Header, `admitted`, bytes, half-close. */
  async sendFile(data: Uint8Array | string, fields: Partial<MatteHeader> = {}): Promise<this> {
    await this.announce({ contentLength: Buffer.from(data as string).length, ...fields });
    this.send(chunk(data)).call.end();
    return this;
  }

  async serve(data: Uint8Array | string, fields: Partial<MatteHeader> = {}): Promise<this> {
    await this.sendFile(data, fields);
    assert.equal(await this.ended, undefined);
    return this;
  }

  async until<K extends Kind>($case: K): Promise<Value<K>> {
    for (;;) {
      const found = this.messages.find(({ message }) => message?.$case === $case);
      if (found) return found.message!.value as Value<K>;
      const over = this.#ended.then(error => {
        throw error ?? new Error(`the call ended without ${$case}`);
      });
      await soon(`a message ${$case}`, Promise.race([this.#arrived.promise, over]));
    }
  }

  kinds(): string[] {
    const all = this.messages.map(({ message }) => message?.$case ?? 'nothing');
    return all.filter((kind, index) => kind !== all[index - 1]);
  }

  result(): { header: ResultHeader | undefined; file: Buffer } {
    let found: ResultHeader | undefined;
    const parts: Buffer[] = [];
    for (const { message } of this.messages) {
      if (message?.$case === 'resultHeader') found = message.value;
      if (message?.$case === 'chunk') parts.push(message.value.data);
    }
    return { header: found, file: Buffer.concat(parts) };
  }

  /** `status`: gRPC's number. */
  async refused(expected: {
    code?: string;
    retryable?: boolean;
    status?: number;
    message?: RegExp;
  }) {
    const error = await this.ended;
    if (error === undefined) throw new Error('the call succeeded');
    const failure = Object.assign(fromServiceError(error), { status: error.code });
    await assert.rejects(Promise.reject(failure), expected);
  }
}

type Kind = NonNullable<MatteResponse['message']>['$case'];
type Value<K extends Kind> = Extract<MatteResponse['message'], { $case: K }>['value'];
