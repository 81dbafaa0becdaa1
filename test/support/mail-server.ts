import { once } from 'node:events';
import { type AddressInfo, createServer, type Server, type Socket } from 'node:net';

/** Commands whose answer a test may set, and the greeting. */
export type MailCommand = 'greeting' | 'EHLO' | 'AUTH' | 'MAIL' | 'RCPT' | 'DATA';

export class MailServer {
  /** Such as `550 nobody here`; empty: no answer. */
  readonly answers = new Map<MailCommand, string>();
  received = '';
  readonly recipients: string[] = [];
  readonly #server: Server;
  readonly #sockets = new Set<Socket>();

  private constructor() {
    this.#server = createServer(socket => this.#converse(socket));
  }

  static async start(): Promise<MailServer> {
    const mails = new MailServer();
    await mails.listen(0);
    return mails;
  }

  get port(): number {
    return (this.#server.address() as AddressInfo).port;
  }

  get url(): string {
    return `smtp://127.0.0.1:${this.port}`;
  }

  /** Also starts it again after `close`. */
  async listen(port: number): Promise<void> {
    this.#server.listen(port, '127.0.0.1');
    await once(this.#server, 'listening');
  }

  async connection(): Promise<void> {
    await once(this.#server, 'connection');
  }

  async close(): Promise<void> {
    const closed = once(this.#server, 'close');
    this.#server.close();
    for (const socket of this.#sockets) socket.destroy();
    await closed;
  }

  #converse(socket: Socket): void {
    this.#sockets.add(socket);
    socket.once('close', () => this.#sockets.delete(socket));
    socket.on('error', () => undefined);
    let inData = false;
    const answer = (command: string, usual: string) => {
      const text = this.answers.get(command as MailCommand) ?? usual;
      if (text !== '') socket.write(`${text}\r\n`);
    };
    answer('greeting', '220 test ESMTP');
    socket.setEncoding('utf8').on('data', (text: unknown) => {
      for (const line of String(text).split('\r\n')) {
        if (inData) {
          this.received += `${line}\n`;
          if (line !== '.') continue;
          inData = false;
          socket.write('250 taken\r\n');
        } else if (line !== '') {
          const [word = ''] = line.toUpperCase().split(' ');
          if (word === 'RCPT') this.recipients.push(line);
          inData = word === 'DATA' && !this.answers.has('DATA');
          answer(word, usualAnswer(word));
        }
      }
    });
  }
}

function usualAnswer(word: string): string {
  if (word === 'EHLO') return '250-test\r\n250 AUTH PLAIN';
  if (word === 'AUTH') return '235 welcome';
  return word === 'DATA' ? '354 go on' : '250 fine';
}
