/** The jobs table of a simulation: what waits, in the queue's order, and who may claim it. */
import type { SimulatedJob } from './workload.ts';

export class JobTable {
  readonly jobs: readonly SimulatedJob[];
  /** Indices of jobs without a lease, ascending: the order they came in. */
  readonly #free: number[] = [];

  constructor(jobs: readonly SimulatedJob[]) {
    this.jobs = jobs;
  }

  get waiting(): number {
    return this.#free.length;
  }

  /** Submitted, or given back. */
  put(job: SimulatedJob): void {
    this.#free.splice(this.#placeOf(job.index), 0, job.index);
  }

  /** Compare-and-set: false where another replica was faster. */
  claim(job: SimulatedJob): boolean {
    const place = this.#placeOf(job.index);
    if (this.#free[place] !== job.index) return false;
    this.#free.splice(place, 1);
    return true;
  }

  first(count: number): SimulatedJob[] {
    return this.#free.slice(0, count).map(index => this.jobs[index]);
  }

  #placeOf(index: number): number {
    let low = 0;
    let high = this.#free.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.#free[middle] < index) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
