/** The end of an answer, also where the caller left before it: Fastify's onResponse misses those. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify';

/** What others log, too, for a caller who left before the answer's head was sent. */
const LEFT_BEFORE = 499;

/** Of one answer: some ten, of Node, the body's readers and what waits with it. More would be a leak. */
const LISTENERS_MAX = 20;

export interface AnswerEnd {
  /** 499 where the caller left before anything was sent. */
  readonly status: number;
  /** True where the caller left before the end; else absent, so that a line has it only then. */
  readonly left?: true;
}

type Note = (request: FastifyRequest, reply: FastifyReply, end: AnswerEnd) => void;

/** Calls `note` once for each request that a route or the not-found handler took. */
export function onAnswerEnd(app: FastifyInstance, note: Note): void {
  const noted = new WeakSet<FastifyRequest>();
  const noteOnce = (request: FastifyRequest, reply: FastifyReply) => {
    if (noted.has(request)) return;
    noted.add(request);
    const left = !reply.raw.writableFinished;
    const status = left && !reply.raw.headersSent ? LEFT_BEFORE : reply.statusCode;
    note(request, reply, { status, ...(left && { left }) });
  };
  app.addHook('onRequest', (request, reply, done) => {
    reply.raw.setMaxListeners(LISTENERS_MAX);
    // Before what else listens: a request's span ends then.
    reply.raw.prependOnceListener('close', () => noteOnce(request, reply));
    done();
  });
  app.addHook('onResponse', (request, reply, done) => {
    noteOnce(request, reply);
    done();
  });
}
