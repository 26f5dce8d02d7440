from collections.abc import Sequence

INTERFACE: int
MOST_K: int
TOGETHER: int

class CostModel:
    @staticmethod
    def linear(a_s: float, b_s_per_byte: float) -> CostModel: ...
    @staticmethod
    def measured(points: Sequence[tuple[float, float]]) -> CostModel: ...
    def __call__(self, bytes: float) -> float: ...
    def plus(self, seconds: float) -> CostModel: ...
    @property
    def a_s(self) -> float: ...
    @property
    def b_s_per_byte(self) -> float: ...
    @property
    def points(self) -> list[tuple[float, float]]: ...

def fit_linear(samples: Sequence[tuple[float, float]]) -> tuple[float, float]: ...
def fit_measured(samples: Sequence[tuple[float, float]]) -> CostModel: ...
def allreduce_cost(algorithm: str, n: int, alpha: float, beta: float, gamma: float) -> tuple[float, float]: ...

class Prediction:
    @property
    def starts_s(self) -> list[float]: ...
    @property
    def ends_s(self) -> list[float]: ...
    @property
    def finish_s(self) -> float: ...
    @property
    def exposed_s(self) -> float: ...

def plan(
    policy: str,
    bytes: Sequence[float],
    ready_s: Sequence[float],
    types: Sequence[int],
    costs: CostModel,
    threshold_bytes: float = 0,
    max_group_bytes: float = 0,
) -> list[list[int]]: ...
def predict(
    groups: Sequence[Sequence[int]],
    bytes: Sequence[float],
    ready_s: Sequence[float],
    types: Sequence[int],
    costs: CostModel,
) -> Prediction: ...
def plan_armed(
    bytes: Sequence[float],
    ready_s: Sequence[float],
    types: Sequence[int],
    costs: CostModel,
    coordination_s: float,
    together: int,
    max_group_bytes: float = 0,
    work_s: float = 0,
) -> list[list[int]]: ...
def predict_armed(
    groups: Sequence[Sequence[int]],
    bytes: Sequence[float],
    ready_s: Sequence[float],
    types: Sequence[int],
    costs: CostModel,
    coordination_s: float,
    together: int,
    work_s: float = 0,
) -> Prediction: ...
def predict_stock(
    bytes: Sequence[float],
    ready_s: Sequence[float],
    types: Sequence[int],
    costs: CostModel,
    coordination_s: float,
    cycle_s: float,
    threshold_bytes: float,
) -> tuple[list[list[int]], Prediction]: ...
def validate_groups(groups: Sequence[Sequence[int]], n: int) -> None: ...
def fastest_allreduce(
    ranks: int, bytes: float, alpha_s: float, message_s: float, beta_s_per_byte: float, gamma_s_per_byte: float
) -> tuple[int, float]: ...
def allreduce_time(
    method: int,
    ranks: int,
    bytes: float,
    alpha_s: float,
    message_s: float,
    beta_s_per_byte: float,
    gamma_s_per_byte: float,
) -> float: ...
