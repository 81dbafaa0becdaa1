import { credentials, makeGenericClientConstructor, type ServiceError } from '@grpc/grpc-js';
import { service as healthService } from 'grpc-health-check';

type Answered = (error: ServiceError | null, answer: { status: string }) => void;

interface RawHealthClient {
  check(request: { service: string }, options: { deadline?: number }, callback: Answered): void;
  close(): void;
}

export class HealthClient {
  readonly #raw: RawHealthClient;

  constructor(address: string) {
    const Client = makeGenericClientConstructor(healthService as never, 'grpc.health.v1.Health');
    const raw: unknown = new Client(address, credentials.createInsecure());
    this.#raw = raw as RawHealthClient;
  }

  check(service: string, deadlineMs?: number): Promise<string> {
    const limits = deadlineMs === undefined ? {} : { deadline: Date.now() + deadlineMs };
    return new Promise((resolve, reject) => {
      this.#raw.check({ service }, limits, (error, answer) =>
        error ? reject(error) : resolve(answer.status),
      );
    });
  }

  close(): void {
    this.#raw.close();
  }
}
