/** A MatteService that a test controls. Its result is the input after a prefix. */
import { randomUUID } from 'node:crypto';
import { connect, createServer, type Socket, type Server as TcpServer } from 'node:net';
import { Readable } from 'node:stream';
import {
  credentials,
  Metadata,
  Server,
  ServerCredentials,
  type ServerOptions,
  type ServerWritableStream,
} from '@grpc/grpc-js';
import { ContractError } from '@matting/proto/contract/errors.ts';
import { toStatus } from '@matting/proto/contract/grpc-status.ts';
import { IMAGE_PIXELS_MAX } from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  InputFormat,
  type MatteHeader,
  type MatteRequest,
  MatteServiceService,
  NodeState,
  OutputFormat,
  type WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import {
  Command,
  NodeRegistryClient,
  type RegisterResponse,
} from '@matting/proto/gen/matting/v1/node_registry.ts';
import type { MatteCall } from '../matte-client-call.ts';
import { type Duplex, Exchange, type Script } from './scripted-exchange.ts';

export const TEST_TOKEN = 'a-node-token-for-tests';
type Watcher = ServerWritableStream<unknown, WatchCapacityResponse>;

export interface ScriptedNodeOptions {
  readonly nodeId?: string;
  readonly script?: Script;
  readonly imagesMax?: number;
  readonly info?: Partial<GetNodeInfoResponse>;
  readonly load?: () => Partial<WatchCapacityResponse>;
  readonly server?: ServerOptions;
}

/** The result is discarded. */
export function callOf(input: Uint8Array, changes: Partial<MatteCall> = {}): MatteCall {
  return {
    jobId: 'job',
    attempt: 1,
    inputBytes: input.length,
    inputFormat: 'png',
    width: 10,
    height: 10,
    outputFormat: 'png',
    sync: true,
    openInput: async () => Readable.from([Buffer.from(input)], { objectMode: false }),
    sink: { write: async () => undefined },
    signal: new AbortController().signal,
    timeoutMs: 20_000,
    ...changes,
  };
}

/**
 * Not during shutdown: Node 24.21 then leaves the handle half closed, and the ending process spins
 * forever (Environment::CleanupHandles).
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
  /** False: a node that hangs, with open streams and no reports. */
  reporting = true;
  /** Answered by a demand to register again. */
  refusedHeartbeats = 0;
  connectionsMade = 0;
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

  get connections(): number {
    // Each connection has two sockets here.
    return this.#sockets.size / 2;
  }

  /** Open connections stay. */
  stopListening(): void {
    this.#front?.close();
  }

  /** Stays a member until `down`. */
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
        // Follows even an unanswered one, as a node's own would.
        registry.heartbeat({ nodeId, bootId: this.bootId }, metadata, (error, answer) => {
          if (!error && answer.command === Command.COMMAND_REGISTER) this.refusedHeartbeats += 1;
        });
      }, heartbeatIntervalMs),
    );
  }

  async up(): Promise<void> {
    const server = new Server(this.#options.server);
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
    // A relay whose sockets a test can cut, as if the machine died.
    this.#front = createServer(client => this.#relay(client, inner));
    await new Promise<void>((resolve, reject) => {
      this.#front?.once('error', reject);
      this.#front?.listen(this.#port, '127.0.0.1', resolve);
    });
    this.#port = (this.#front.address() as { port: number }).port;
    this.#repeat = setInterval(() => this.report(), 1000);
  }

  /** As if the machine died. */
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

  async restart(): Promise<void> {
    this.bootId = randomUUID();
    await this.up();
  }

  report(): void {
    if (this.reporting) for (const watcher of this.#watchers) watcher.write(this.#capacity());
  }

  #relay(client: Socket, port: number): void {
    this.connectionsMade += 1;
    const server = connect(port, '127.0.0.1');
    for (const socket of [client, server]) {
      // Otherwise small messages wait 40 ms for a delayed acknowledgement.
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
      gpus: [],
      plan: 'scripted',
      commercialUseRequired: '',
      plans: ['scripted'],
      selectable: [],
      capabilities: [],
      finishing: false,
      executionProviderRequested: 'cpu',
      executionProviderSelected: 'cpu',
      inputFormats: [InputFormat.INPUT_FORMAT_JPEG, InputFormat.INPUT_FORMAT_PNG],
      outputFormats: [OutputFormat.OUTPUT_FORMAT_PNG, OutputFormat.OUTPUT_FORMAT_WEBP],
      limits: {
        imageBytesMax: 52_428_800,
        imageSidePxMax: 10_000,
        imagePixelsMax: IMAGE_PIXELS_MAX,
        jxlPixelsMax: 0,
        megapixelsAloneMax: 1_000_000,
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
      // A call cancelled during its script ends like this; other errors must be seen.
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
