import {
  ChannelCredentials,
  type ChannelOptions,
  type ClientReadableStream,
  connectivityState,
  Metadata,
} from '@grpc/grpc-js';
import type { ChannelSecurity } from '@matting/program/tls/tls-files.ts';
import {
  activeCarrier,
  describeSpan,
  errorTypeOf,
  failSpan,
  type SpanBegin,
  traced,
} from '@matting/program/tracing/active-span.ts';
import { MATTE } from '@matting/proto/contract/chunk-wire.ts';
import { MESSAGE_BYTES_MAX } from '@matting/proto/contract/limits.ts';
import {
  type GetNodeInfoResponse,
  MatteServiceClient,
  type WatchCapacityResponse,
} from '@matting/proto/gen/matting/v1/matte_service.ts';
import { type AttemptOutcome, outcomeOf } from './attempt-outcome.ts';
import { type MatteCall, MatteClientCall } from './matte-client-call.ts';

/** With the default of 64 KiB, 40 MB at a latency of 2 ms take seconds. */
const FLOW_CONTROL_WINDOW_BYTES = 4 * 1024 * 1024;
/** A node answers a header from memory, so a longer silence means that it is gone. */
const ADMISSION_TIMEOUT_MS = 5000;
const NODE_INFO_TIMEOUT_MS = 5000;

const CHANNEL_OPTIONS: ChannelOptions = {
  // The library cannot replay an upload over 1 MiB. The job's run retries.
  'grpc.enable_retries': 0,
  'grpc.max_receive_message_length': MESSAGE_BYTES_MAX,
  'grpc.max_send_message_length': MESSAGE_BYTES_MAX,
  'grpc-node.flow_control_window': FLOW_CONTROL_WINDOW_BYTES,
  'grpc.keepalive_time_ms': 20_000,
  'grpc.keepalive_timeout_ms': 10_000,
  'grpc.keepalive_permit_without_calls': 1,
  // Finds a restarted node at once, not after the default of a minute.
  'grpc.initial_reconnect_backoff_ms': 100,
  'grpc.max_reconnect_backoff_ms': 1000,
  // Nodes are inside the network: a proxy of the environment is not for them.
  'grpc.enable_http_proxy': 0,
  'grpc.use_local_subchannel_pool': 1,
};

const MATTE_SPAN: SpanBegin = {
  name: 'matting.v1.MatteService/Matte',
  kind: 'CLIENT',
  attributes: { 'rpc.system.name': 'grpc', 'rpc.method': 'matting.v1.MatteService/Matte' },
};

const PLAIN_TEXT: ChannelSecurity = {
  credentials: ChannelCredentials.createInsecure(),
  options: {},
};

/** Applies back-pressure in both directions, so that a slow node never fills our memory. */
export class NodeClient {
  readonly #client: MatteServiceClient;
  readonly #nodeToken: () => string;
  readonly #admissionTimeoutMs: number;
  #moved: (() => void) | undefined;

  /**
   * @param address host:port; connects lazily
   * @param nodeToken read for each call, since it may change
   */
  constructor(
    address: string,
    nodeToken: () => string,
    { credentials, options }: ChannelSecurity = PLAIN_TEXT,
    admissionTimeoutMs = ADMISSION_TIMEOUT_MS,
  ) {
    this.#admissionTimeoutMs = admissionTimeoutMs;
    this.#client = new MatteServiceClient(address, credentials, { ...CHANNEL_OPTIONS, ...options });
    this.#nodeToken = nodeToken;
  }

  close(): void {
    this.#client.close();
  }

  getNodeInfo(): Promise<GetNodeInfoResponse> {
    const deadline = Date.now() + NODE_INFO_TIMEOUT_MS;
    return new Promise((resolve, reject) => {
      this.#client.getNodeInfo({}, this.#metadata(), { deadline }, (error, response) => {
        if (error === null) resolve(response);
        else reject(error);
      });
    });
  }

  watchCapacity(): ClientReadableStream<WatchCapacityResponse> {
    return this.#client.watchCapacity({}, this.#metadata());
  }

  /**
   * Notifies the last listener, once, that the connection takes no more calls. Running calls may
   * continue, but not past the next keepalive (grpc/grpc-node#3068).
   */
  onMoved(listener: () => void): void {
    const isWatched = this.#moved !== undefined;
    this.#moved = listener;
    if (isWatched) return;
    const { READY } = connectivityState;
    this.#client.getChannel().watchConnectivityState(READY, Number.POSITIVE_INFINITY, () => {
      const listener = this.#moved;
      this.#moved = undefined;
      listener?.();
    });
  }

  matte(request: MatteCall): Promise<AttemptOutcome> {
    return traced(MATTE_SPAN, async () => {
      const outcome = await this.#matte(request);
      describeSpan({ 'matting.outcome': outcome.kind });
      if ('error' in outcome) failSpan(errorTypeOf(outcome.error));
      return outcome;
    });
  }

  async #matte(request: MatteCall): Promise<AttemptOutcome> {
    if (request.signal.aborted) return { kind: 'aborted' };
    const deadline = Date.now() + request.timeoutMs;
    const call = this.#client.makeBidiStreamRequest(
      MATTE.path,
      MATTE.requestSerialize,
      MATTE.responseDeserialize,
      this.#metadata(activeCarrier()),
      { deadline },
    );
    const exchange = new MatteClientCall(call, request, this.#admissionTimeoutMs);
    const abort = () => call.cancel();
    request.signal.addEventListener('abort', abort, { once: true });
    try {
      return { kind: 'done', result: await exchange.run() };
    } catch (error) {
      // Frees the node's permits at once after our error or a broken answer.
      call.cancel();
      return outcomeOf(error, exchange.admitted, request.signal.aborted);
    } finally {
      request.signal.removeEventListener('abort', abort);
    }
  }

  /** @param carrier the parent of the node's spans */
  #metadata(carrier?: ReturnType<typeof activeCarrier>): Metadata {
    const metadata = new Metadata();
    metadata.set('authorization', `Bearer ${this.#nodeToken()}`);
    if (carrier !== undefined) metadata.set('traceparent', carrier.traceparent);
    if (carrier?.tracestate) metadata.set('tracestate', carrier.tracestate);
    return metadata;
  }
}
