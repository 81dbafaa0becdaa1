/** An attack: connections whose headers promise a form of which not a byte is ever sent. */
import net from 'node:net';

export interface HalfSentFormsOptions {
  readonly port: number;
  /** Request lines and headers, without the empty line; one after the other. */
  readonly heads: readonly (readonly string[])[];
  /** Kept open: each that is closed is opened anew. */
  readonly connections: number;
  /** IPv4 addresses that they come from, of 127.0.0.0/8. */
  readonly networks: number;
}

/** Opened at once: more would only wait in the system's queue, and be late when one is closed. */
const OPENING_MAX = 64;
/** Between the end of one and the next: an attacker has a loop to run, too. */
const AGAIN_MS = 20;

export class HalfSentForms {
  readonly #options: HalfSentFormsOptions;
  readonly #open = new Set<net.Socket>();
  #opening = 0;
  #tried = 0;
  #began = 0;
  #ended = 0;
  #timer: NodeJS.Timeout | undefined;

  constructor(options: HalfSentFormsOptions) {
    this.#options = options;
  }

  get began(): number {
    return this.#began;
  }

  get ended(): number {
    return this.#ended;
  }

  get open(): number {
    return this.#open.size;
  }

  start(): void {
    this.#timer = setInterval(() => this.#fill(), AGAIN_MS);
    this.#fill();
  }

  stop(): void {
    clearInterval(this.#timer);
    this.#timer = undefined;
    for (const socket of this.#open) socket.destroy();
  }

  #fill(): void {
    const { connections } = this.#options;
    while (this.#opening < OPENING_MAX && this.#open.size < connections) this.#connect();
  }

  #connect(): void {
    const { port, heads, networks } = this.#options;
    const from = this.#tried % networks;
    const head = heads[this.#tried % heads.length] ?? [];
    this.#tried += 1;
    const localAddress = `127.${1 + (from >> 15)}.${(from >> 7) & 255}.${(from & 127) + 1}`;
    const socket = net.connect({ port, host: '127.0.0.1', localAddress });
    let isOpen = false;
    this.#open.add(socket);
    this.#opening += 1;
    const opened = () => {
      if (!isOpen) this.#opening -= 1;
      isOpen = true;
    };
    socket.once('connect', () => {
      opened();
      this.#began += 1;
      socket.write(`${head.join('\r\n')}\r\n\r\n`);
    });
    // A reset is one way of being ended; what is answered is of no interest.
    socket.on('error', () => undefined).resume();
    socket.once('close', () => {
      opened();
      this.#ended += 1;
      this.#open.delete(socket);
    });
  }
}
