/**
 * A MatteService on loopback that does what a test tells it: answers well, refuses, dies, lies,
 * hangs. It touches no pixel; its result is the input's bytes behind a prefix, so that a test can
 * tell whose result it has.
 */
import { createHash, randomUUID } from 'node:crypto';
import { once } from 'node:events';
import { connect, createServer, type Socket, type Server as TcpServer } from 'node:net';
import {
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  type ServerDuplexStream,
  type ServerWritableStream,
} from '@grpc/grpc-js';
import { ContractError, type ErrorCode } from '#contract/errors.ts';
import { toStatus } from '#contract/grpc-status.ts';
import { CHUNK_BYTES_MAX, IMAGE_PIXELS_MAX } from '#contract/limits.ts';
import {
  type GetNodeInfoResponse,
  InputFormat,
  type MatteHeader,
  type MatteRequest,
  type MatteResponse,
  MatteServiceService,
  NodeState,
  OutputFormat,
  ResultKind,
  Stage,
  type WatchCapacityResponse,
} from '#gen/matting/v1/matte_service.ts';
import {
  Command,
  NodeRegistryClient,
  type RegisterResponse,
} from '#gen/matting/v1/node_registry.ts';

export const TEST_TOKEN = 'a-node-token-for-tests';
const PREFIX = Buffer.from('cut out: ');

/** What the scripted node makes of an input. */
export function cutOutOf(input: Uint8Array): Buffer {
  return Buffer.concat([PREFIX, input]);
}

export type Script = (exchange: Exchange) => Promise<void>;

type Duplex = ServerDuplexStream<MatteRequest, MatteResponse>;
type Watcher = ServerWritableStream<unknown, WatchCapacityResponse>;

/** One Matte call as a script sees it. */
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

  /** All chunks until the caller's half-close. */
  async receive(): Promise<Buffer> {
    const chunks: Buffer[] = [];
    for (;;) {
      const next = await this.#messages.next();
      if (next.done) return Buffer.concat(chunks);
      if (next.value.message?.$case === 'chunk') chunks.push(next.value.message.value.data);
    }
  }

  announce(result: Uint8Array, changes: { sizeBytes?: number; format?: OutputFormat } = {}): void {
    const sizeBytes = changes.sizeBytes ?? result.length;
    const format = changes.format ?? this.header.outputFormat;
    this.write({
      $case: 'resultHeader',
      value: {
        format,
        contentType: 'image/png',
        sizeBytes,
        width: this.header.width || 1,
        height: this.header.height || 1,
        resultKind: ResultKind.RESULT_KIND_CUTOUT,
        plan: 'scripted',
        modelRuns: [],
        modelsMissing: [],
        runsMissing: [],
      },
    });
  }

  send(result: Uint8Array): void {
    for (let start = 0; start < result.length; start += CHUNK_BYTES_MAX) {
      const data = Buffer.from(result.subarray(start, start + CHUNK_BYTES_MAX));
      this.write({ $case: 'chunk', value: { data } });
    }
  }

  /** One chunk, when the stream takes it. */
  async sendPaced(data: Uint8Array): Promise<void> {
    const message: MatteResponse = {
      message: { $case: 'chunk', value: { data: Buffer.from(data) } },
    };
    if (!this.#call.write(message)) await once(this.#call, 'drain');
  }

  done(sha256: Buffer): void {
    const stage = {
      receiveMs: 1,
      workerWaitMs: 0,
      decodeMs: 2,
      engineWaitMs: 0,
      inferMs: 3,
      secondLookMs: 0,
      refineMs: 1,
      encodeMs: 1,
      sendMs: 1,
    };
    this.write({ $case: 'done', value: { sha256, timings: stage } });
  }

  end(): void {
    this.#call.end();
  }

  fail(code: ErrorCode, options: { retryable?: boolean } = {}): void {
    this.#call.emit('error', toStatus(new ContractError(code, `told to: ${code}`, options)));
  }

  /** Everything as it should be. */
  async cutOut(): Promise<void> {
    this.admit();
    this.answer(await this.receive());
  }

  /** The result of an input that was received. */
  answer(input: Uint8Array): void {
    this.write({ $case: 'progress', value: { stage: Stage.STAGE_INFERRING } });
    const result = cutOutOf(input);
    this.announce(result);
    this.send(result);
    this.done(createHash('sha256').update(result).digest());
    this.end();
  }
}

export interface ScriptedNodeOptions {
  readonly nodeId?: string;
  readonly script?: Script;
  /** Images admitted at once, as it reports them. */
  readonly imagesMax?: number;
  readonly info?: Partial<GetNodeInfoResponse>;
  /** What it says of its load besides, at each report. */
  readonly load?: () => Partial<WatchCapacityResponse>;
}

/**
 * Not while it shuts down: Node 24.21 then leaves the handle half closed, and a process that ends
 * by itself spins for ever (Environment::CleanupHandles).
 */
function reset(socket: Socket): void {
  if (socket.writableEnded) socket.destroy();
  else socket.resetAndDestroy();
}

export class ScriptedNode {
  readonly nodeId: string;
  readonly headers: MatteHeader[] = [];
  readonly #options: ScriptedNodeOptions;
  readonly #watchers = new Set<Watcher>();
  readonly #sockets = new Set<Socket>();
  bootId = randomUUID();
  script: Script;
  state: NodeState = NodeState.NODE_STATE_SERVING;
  enginesReady = 1;
  /** False: reports stop, the streams stay open: a node that hangs. */
  reporting = true;
  /** Heartbeats answered with the demand to register anew. */
  refusedHeartbeats = 0;
  /** Calls admitted and not over. */
  readonly #admitted = new Set<Duplex>();
  #sequence = 0;
  #server: Server | undefined;
  #front: TcpServer | undefined;
  #port = 0;
  #repeat: NodeJS.Timeout | undefined;
  readonly #heartbeats: NodeJS.Timeout[] = [];
  readonly #registries: NodeRegistryClient[] = [];

  private constructor(options: ScriptedNodeOptions) {
    this.#options = options;
    this.nodeId = options.nodeId ?? `node-${randomUUID().slice(0, 8)}`;
    this.script = options.script ?? (exchange => exchange.cutOut());
  }

  static async start(options: ScriptedNodeOptions = {}): Promise<ScriptedNode> {
    const node = new ScriptedNode(options);
    await node.up();
    return node;
  }

  get address(): string {
    return `127.0.0.1:${this.#port}`;
  }

  get member() {
    const { nodeId, bootId, address } = this;
    return { nodeId, bootId, address, draining: false };
  }

  get registration() {
    const { nodeId, bootId, address } = this;
    return { nodeId, bootId, address, httpAddress: '', version: 'test' };
  }

  get watched(): boolean {
    return this.#watchers.size > 0;
  }

  /** Registers as a node does and keeps its membership alive until it is down. */
  async join(registryPort: number): Promise<void> {
    const registry = new NodeRegistryClient(
      `127.0.0.1:${registryPort}`,
      credentials.createInsecure(),
    );
    this.#registries.push(registry);
    const metadata = new Metadata();
    metadata.set('authorization', `Bearer ${TEST_TOKEN}`);
    const { heartbeatIntervalMs } = await new Promise<RegisterResponse>((resolve, reject) => {
      registry.register(this.registration, metadata, (error, answer) =>
        error ? reject(error) : resolve(answer),
      );
    });
    const { nodeId } = this;
    this.#heartbeats.push(
      setInterval(() => {
        // One that is not answered is followed by the next, as a node's own would be.
        registry.heartbeat({ nodeId, bootId: this.bootId }, metadata, (error, answer) => {
          if (!error && answer.command === Command.COMMAND_REGISTER) this.refusedHeartbeats += 1;
        });
      }, heartbeatIntervalMs),
    );
  }

  /** Listens, at the same port as before if there was one. */
  async up(): Promise<void> {
    const server = new Server();
    server.addService(MatteServiceService, {
      matte: (call: Duplex) => this.#matte(call),
      getNodeInfo: (_call: unknown, callback: (error: null, info: GetNodeInfoResponse) => void) =>
        callback(null, this.#info()),
      watchCapacity: (call: Watcher) => this.#watch(call),
    });
    this.#server = server;
    const inner = await new Promise<number>((resolve, reject) => {
      server.bindAsync('127.0.0.1:0', ServerCredentials.createInsecure(), (error, port) =>
        error === null ? resolve(port) : reject(error),
      );
    });
    // In front of it a relay, whose sockets a test can cut as a machine's death would.
    this.#front = createServer(client => this.#relay(client, inner));
    await new Promise<void>((resolve, reject) => {
      this.#front?.once('error', reject);
      this.#front?.listen(this.#port, '127.0.0.1', resolve);
    });
    this.#port = (this.#front.address() as { port: number }).port;
    this.#repeat = setInterval(() => this.report(), 1000);
  }

  /** As if its machine were gone: every connection is reset, nothing listens. */
  async down(): Promise<void> {
    clearInterval(this.#repeat);
    for (const heartbeat of this.#heartbeats.splice(0)) clearInterval(heartbeat);
    for (const registry of this.#registries.splice(0)) registry.close();
    const closed = new Promise(resolve => this.#front?.close(resolve));
    for (const socket of this.#sockets) reset(socket);
    this.#server?.forceShutdown();
    await closed;
    this.#watchers.clear();
    this.#admitted.clear();
  }

  /** The process started anew under the same name. */
  async restart(): Promise<void> {
    this.bootId = randomUUID();
    await this.up();
  }

  report(): void {
    if (this.reporting) for (const watcher of this.#watchers) watcher.write(this.#capacity());
  }

  #relay(client: Socket, port: number): void {
    const server = connect(port, '127.0.0.1');
    for (const socket of [client, server]) {
      // Or small messages wait 40 ms for an acknowledgement that is delayed.
      socket.setNoDelay(true);
      this.#sockets.add(socket);
      socket.on('error', () => socket.destroy());
      socket.on('close', () => this.#sockets.delete(socket));
    }
    client.pipe(server).pipe(client);
    client.on('close', () => server.destroy());
    server.on('close', () => client.destroy());
  }

  #capacity(): WatchCapacityResponse {
    const imagesMax = this.#options.imagesMax ?? 2;
    this.#sequence += 1;
    return {
      sequence: this.#sequence,
      state: this.state,
      imagesInFlight: this.#admitted.size,
      imagesFree: Math.max(0, imagesMax - this.#admitted.size),
      megapixelsFree: 1000,
      enginesReady: this.enginesReady,
      estimatedWaitMs: this.#admitted.size * 10,
      inferMs: 10,
      decodeMsPerMegapixel: 1,
      encodeMsPerMegapixel: 1,
      decodeRates: [],
      encodeRates: [],
      ...this.#options.load?.(),
    };
  }

  #info(): GetNodeInfoResponse {
    return {
      nodeId: this.nodeId,
      bootId: this.bootId,
      version: 'test',
      protocolVersion: 'matting.v1',
      models: [],
      plan: 'scripted',
      plans: ['scripted'],
      executionProviderRequested: 'cpu',
      executionProviderSelected: 'cpu',
      inputFormats: [InputFormat.INPUT_FORMAT_JPEG, InputFormat.INPUT_FORMAT_PNG],
      outputFormats: [OutputFormat.OUTPUT_FORMAT_PNG, OutputFormat.OUTPUT_FORMAT_WEBP],
      limits: {
        imageBytesMax: 52_428_800,
        imageSidePxMax: 10_000,
        imagePixelsMax: IMAGE_PIXELS_MAX,
        jxlPixelsMax: 0,
        megapixelsMax: 1000,
        imagesMax: this.#options.imagesMax ?? 2,
      },
      engines: 1,
      pictureWorkers: 1,
      device: 'test',
      ...this.#options.info,
    };
  }

  #watch(call: Watcher): void {
    this.#watchers.add(call);
    call.on('cancelled', () => this.#watchers.delete(call));
    call.on('close', () => this.#watchers.delete(call));
    if (this.reporting) call.write(this.#capacity());
  }

  #matte(call: Duplex): void {
    const release = () => {
      if (this.#admitted.delete(call)) this.report();
    };
    const admit = () => {
      this.#admitted.add(call);
      this.report();
    };
    this.#play(call, admit).then(release, error => {
      release();
      // A call that was cancelled under its script ends so; a broken script must be seen.
      if (!call.cancelled) call.emit('error', toStatus(error));
    });
  }

  async #play(call: Duplex, onAdmit: () => void): Promise<void> {
    if (call.metadata.get('authorization')[0] !== `Bearer ${TEST_TOKEN}`) {
      throw new ContractError('INVALID_NODE_TOKEN', 'the token is wrong');
    }
    const messages = (call as AsyncIterable<MatteRequest>)[Symbol.asyncIterator]();
    const first = await messages.next();
    if (first.done || first.value.message?.$case !== 'header') {
      throw new Error('the first message is no header');
    }
    const header = first.value.message.value;
    this.headers.push(header);
    await this.script(new Exchange(call, header, messages, onAdmit));
  }
}
